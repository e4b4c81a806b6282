"""Many numbers at a time in numba kernels, where its compiler would not see that it can.

A value of type ``Lanes`` holds some registers of eight numbers each. Its operations are those of LLVM's vectors, which exist
on every processor, and its compiler keeps them in registers. There is nothing to run with ``NUMBA_DISABLE_JIT``.

Numba looks for changes in the file of a compiled function only: files with functions that use these name this one's version,
and a test sees to it.
"""

from __future__ import annotations

import platform

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, register_model

__all__ = [
    "WIDTH",
    "add_products",
    "divide",
    "load",
    "multiply_add",
    "multiply_add_once",
    "spread",
    "store",
    "total",
    "widen",
    "zeros",
]

WIDTH = 8  # of a register: 256 bits in single precision. Wider ones were slower, on a processor that has them.
_FUSED = ("contract",)  # a product and a sum may be rounded once


def _can_fuse() -> bool:
    """Whether this processor has an instruction for a product and a sum; without one it would be a call, and slow."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    try:
        return bool(binding.get_host_cpu_features().get("fma", False))
    except RuntimeError:  # LLVM does not know this system
        return False


_CAN_FUSE = _can_fuse()


class Lanes(types.Type):
    """``n_registers`` of eight numbers."""

    def __init__(self, dtype: types.Float, n_registers: int) -> None:
        self.dtype, self.n_registers = dtype, n_registers
        super().__init__(f"Lanes({dtype}, {n_registers})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes: Lanes) -> None:
        register = ir.VectorType(manager.lookup(lanes.dtype).get_value_type(), WIDTH)
        super().__init__(manager, lanes, ir.ArrayType(register, lanes.n_registers))


@intrinsic(prefer_literal=True)
def zeros(_, array, n_registers):
    """As many registers of zeros, a literal number, of the array's type."""
    lanes = Lanes(array.dtype, n_registers.literal_value)

    def generate(context, builder, signature, arguments):
        return ir.Constant(context.get_value_type(lanes), None)

    return lanes(array, n_registers), generate


@intrinsic
def spread(_, number, like):
    """The number in all places of as many registers as ``like`` has, in its precision."""

    def generate(context, builder, signature, arguments):
        value = context.cast(builder, arguments[0], number, like.dtype)
        undefined = ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined)
        register = builder.shuffle_vector(
            builder.insert_element(undefined, value, _index(0)), undefined, _order([0] * WIDTH)
        )
        return _packed(context, builder, like, [register] * like.n_registers)

    return like(number, like), generate


@intrinsic
def load(_, array, start, like):
    """Entries from ``start`` on of a contiguous array, counted through all its rows. Nothing checks where it ends."""
    _check_contiguous(array)

    def generate(context, builder, signature, arguments):
        registers = []
        for pointer, alignment in _pointers(context, builder, signature, arguments, like.n_registers):
            registers.append(builder.load(pointer))
            registers[-1].align = alignment
        return _packed(context, builder, like, registers)

    return like(array, start, like), generate


@intrinsic
def store(_, array, start, lanes):
    """The opposite of :func:`load`."""
    _check_contiguous(array)

    def generate(context, builder, signature, arguments):
        pointers = _pointers(context, builder, signature, arguments, lanes.n_registers)
        for register, (pointer, alignment) in zip(_registers(builder, arguments[2]), pointers, strict=True):
            builder.store(register, pointer).align = alignment
        return context.get_dummy_value()

    return types.void(array, start, lanes), generate


@intrinsic
def multiply_add(_, a, b, c):
    """a b + c."""

    def generate(context, builder, signature, arguments):
        parts = zip(*(_registers(builder, value) for value in arguments), strict=True)
        return _packed(context, builder, c, [_multiply_add(builder, *part) for part in parts])

    return c(a, b, c), generate


@intrinsic
def multiply_add_once(_, a, b, c):
    """a b + c, rounded once where the processor can do that, and else twice: in every place of every register alike, whatever
    the compiler thinks of the code around it."""

    def generate(context, builder, signature, arguments):
        parts = zip(*(_registers(builder, value) for value in arguments), strict=True)
        return _packed(context, builder, c, [_multiply_add_once(builder, *part) for part in parts])

    return c(a, b, c), generate


@intrinsic
def add_products(_, a, b, c):
    """One register: c and the sum of the registers of a b, an even number of them."""

    def generate(context, builder, signature, arguments):
        a, b, (total,) = (_registers(builder, value) for value in arguments)
        other = ir.Constant(total.type, None)
        for i in range(0, len(a), 2):  # two sums, neither of which waits for the other
            total = _multiply_add(builder, a[i], b[i], total)
            other = _multiply_add(builder, a[i + 1], b[i + 1], other)
        return _packed(context, builder, signature.return_type, [builder.fadd(total, other)])

    return c(a, b, c), generate


@intrinsic
def divide(_, a, b):
    """a / b."""

    def generate(context, builder, signature, arguments):
        parts = zip(*(_registers(builder, value) for value in arguments), strict=True)
        return _packed(context, builder, a, [builder.fdiv(*part) for part in parts])

    return a(a, b), generate


@intrinsic
def widen(_, lanes):
    """The same numbers in double precision."""
    double = Lanes(types.float64, lanes.n_registers)

    def generate(context, builder, signature, arguments):
        if lanes == double:
            return arguments[0]
        wide = ir.VectorType(ir.DoubleType(), WIDTH)
        return _packed(
            context, builder, double, [builder.fpext(one, wide) for one in _registers(builder, arguments[0])]
        )

    return double(lanes), generate


@intrinsic
def total(_, lanes):
    """The sum of one register."""

    def generate(context, builder, signature, arguments):
        (value,), width = _registers(builder, arguments[0]), WIDTH
        while width > 1:
            width //= 2
            low, high = (builder.shuffle_vector(value, value, _order(range(i, i + width))) for i in (0, width))
            value = builder.fadd(low, high)
        return builder.extract_element(value, _index(0))

    return lanes.dtype(lanes), generate


def _check_contiguous(array: types.Array) -> None:
    if array.layout != "C":
        raise TypingError("Entries are counted through all rows of an array: it must be contiguous.")


def _multiply_add(builder, a, b, c):
    return builder.fadd(builder.fmul(a, b, flags=_FUSED), c, flags=_FUSED)


def _multiply_add_once(builder, a, b, c):
    if not _CAN_FUSE:
        return builder.fadd(builder.fmul(a, b), c)
    name = f"llvm.fma.v{a.type.count}{'f32' if isinstance(a.type.element, ir.FloatType) else 'f64'}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(a.type, [a.type] * 3), name)
    return builder.call(function, [a, b, c])


def _registers(builder, lanes) -> list:
    return [builder.extract_value(lanes, i) for i in range(lanes.type.count)]


def _packed(context, builder, lanes: Lanes, registers: list):
    value = ir.Constant(context.get_value_type(lanes), ir.Undefined)
    for i, register in enumerate(registers):
        value = builder.insert_value(value, register, i)
    return value


def _pointers(context, builder, signature, arguments, n_registers: int):
    """Where each register's entries of an array begin, and the bytes of which that is a multiple."""
    array_type, item = signature.args[0], context.get_value_type(signature.args[0].dtype)
    data = context.make_array(array_type)(context, builder, arguments[0]).data
    for i in range(n_registers):
        start = builder.add(arguments[1], ir.Constant(arguments[1].type, WIDTH * i))
        pointer = builder.bitcast(builder.gep(data, [start]), ir.VectorType(item, WIDTH).as_pointer())
        yield pointer, context.get_abi_sizeof(item)


def _index(number: int):
    return ir.Constant(ir.IntType(32), number)


def _order(numbers):
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), numbers)
