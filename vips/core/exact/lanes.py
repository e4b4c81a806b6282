"""Many numbers at a time in numba kernels, where its compiler would not see that it can.

A value of type ``Lanes`` holds some registers of eight numbers each. Its operations are those of LLVM's vectors, which exist
on every processor, and its compiler keeps them in registers. ``+ - * / min max`` take two of them, or one and a number, and
``abs`` one: a function of numbers that needs nothing else is one of registers, too; of NaN and b, ``min`` and ``max`` are b.
There is nothing to run with ``NUMBA_DISABLE_JIT``.

Numba looks for changes in the file of a compiled function only: files with functions that use these name this one's version,
and a test sees to it.
"""

from __future__ import annotations

import operator
import platform

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

__all__ = [
    "WIDTH",
    "add_products",
    "if_negative",
    "load",
    "load_rows",
    "multiply_add_once",
    "narrow",
    "spread",
    "store",
    "store_transposed",
    "times_power_of_two",
    "total",
    "totals",
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
        return _spread(context, builder, like, number, arguments[0])

    return like(number, like), generate


@intrinsic
def load(_, array, start, like):
    """Entries from ``start`` on of a contiguous array, counted through all its rows. Nothing checks where it ends."""
    _check_contiguous(array)

    def generate(context, builder, signature, arguments):
        return _packed(
            context, builder, like, _loaded(context, builder, signature.args[0], *arguments[:2], like.n_registers)
        )

    return like(array, start, like), generate


@intrinsic
def load_rows(_, array, starts, first, offset, like):
    """Eight registers: from ``starts[first + i] + offset`` on, i = 0, …, 7."""
    _check_contiguous(array)

    def generate(context, builder, signature, arguments):
        array_type, starts_type = signature.args[:2]
        begin = context.make_array(starts_type)(context, builder, arguments[1]).data
        registers = []
        for i in range(WIDTH):
            place = builder.add(arguments[2], ir.Constant(arguments[2].type, i))
            place = builder.add(builder.load(builder.gep(begin, [place])), arguments[3])
            registers += _loaded(context, builder, array_type, arguments[0], place, 1)
        return _packed(context, builder, signature.return_type, registers)

    _check_contiguous(starts)
    return Lanes(like.dtype, WIDTH)(array, types.Array(types.int64, 1, "C"), types.int64, types.int64, like), generate


@intrinsic
def store(_, array, start, lanes):
    """The opposite of :func:`load`."""
    _check_contiguous(array)

    def generate(context, builder, signature, arguments):
        pointers = _pointers(context, builder, signature.args[0], *arguments[:2], lanes.n_registers)
        for register, (pointer, alignment) in zip(_registers(builder, arguments[2]), pointers, strict=True):
            builder.store(register, pointer).align = alignment
        return context.get_dummy_value()

    return types.void(array, start, lanes), generate


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
def if_negative(_, x, a, b):
    """a where x < 0, and b elsewhere, also where x is NaN."""

    def generate(context, builder, signature, arguments):
        nothing = ir.Constant(ir.VectorType(context.get_value_type(x.dtype), WIDTH), None)
        parts = zip(*(_registers(builder, value) for value in arguments), strict=True)
        chosen = [builder.select(builder.fcmp_ordered("<", of_x, nothing), *others) for of_x, *others in parts]
        return _packed(context, builder, a, chosen)

    return a(x, a, b), generate


@intrinsic
def times_power_of_two(_, x, n):
    """x 2ⁿ, where neither is subnormal, 0 or infinite. In place of a whole n stands its sum with 1.5 · 2²³, or 1.5 · 2⁵² in
    double precision, whose last bits are n: they are added to the exponent of x."""

    def generate(context, builder, signature, arguments):
        bits, digits = (32, 23) if x.dtype == types.float32 else (64, 52)
        whole = ir.VectorType(ir.IntType(bits), WIDTH)
        shift, registers = ir.Constant(whole, [digits] * WIDTH), []
        for parts in zip(*(_registers(builder, value) for value in arguments), strict=True):
            of_x, of_n = (builder.bitcast(part, whole) for part in parts)
            registers.append(builder.bitcast(builder.add(of_x, builder.shl(of_n, shift)), parts[0].type))
        return _packed(context, builder, x, registers)

    return x(x, n), generate


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
def narrow(_, lanes, like):
    """The same numbers, rounded to the precision of ``like``."""
    narrowed = Lanes(like.dtype, lanes.n_registers)

    def generate(context, builder, signature, arguments):
        if lanes == narrowed:
            return arguments[0]
        single = ir.VectorType(ir.FloatType(), WIDTH)
        registers = _registers(builder, arguments[0])
        return _packed(context, builder, narrowed, [builder.fptrunc(one, single) for one in registers])

    return narrowed(lanes, like), generate


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


@intrinsic
def totals(_, array, start, like):
    """One register: the sums of the eight registers of an array from ``start`` on."""
    _check_contiguous(array)

    def generate(context, builder, signature, arguments):
        first, *others = _transposed(builder, _loaded(context, builder, signature.args[0], *arguments[:2], WIDTH))
        for other in others:
            first = builder.fadd(first, other, flags=("reassoc",))
        return _packed(context, builder, like, [first])

    return like(array, start, like), generate


@intrinsic
def store_transposed(_, target, start, stride, rows):
    """Eight registers as the columns of eight rows of an array, which begin at ``start``, ``start + stride``, …."""
    _check_contiguous(target)

    def generate(context, builder, signature, arguments):
        array_type, (array, place, step, rows_) = signature.args[0], arguments
        for register in _transposed(builder, _registers(builder, rows_)):
            ((pointer, alignment),) = _pointers(context, builder, array_type, array, place, 1)
            builder.store(register, pointer).align = alignment
            place = builder.add(place, step)
        return context.get_dummy_value()

    return types.void(target, start, stride, rows), generate


class _Arithmetic(AbstractTemplate):
    """Arithmetic of registers; numbers beside them are spread."""

    def generic(self, args, kws):
        lanes = next((one for one in args if isinstance(one, Lanes)), None)
        if lanes is not None and all(one == lanes or isinstance(one, types.Number) for one in args):
            return signature(lanes, *(one if one == lanes else lanes.dtype for one in args))


def _register(function, n_arguments: int, calculate) -> None:
    """Let a function of Python work on registers; ``calculate`` does on those of LLVM, one after the other."""

    def generate(context, builder, signature, arguments):
        lanes = signature.return_type
        spreads = (
            value if kind == lanes else _spread(context, builder, lanes, kind, value)
            for kind, value in zip(signature.args, arguments, strict=True)
        )
        parts = zip(*(_registers(builder, value) for value in spreads), strict=True)
        return _packed(context, builder, lanes, [calculate(builder, *part) for part in parts])

    infer_global(function)(type("_Arithmetic", (_Arithmetic,), {"key": function}))
    for kinds in ((Lanes,),) if n_arguments == 1 else ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(function, *kinds)(generate)


_register(operator.add, 2, lambda builder, a, b: builder.fadd(a, b, flags=_FUSED))
_register(operator.sub, 2, lambda builder, a, b: builder.fsub(a, b, flags=_FUSED))
_register(operator.mul, 2, lambda builder, a, b: builder.fmul(a, b, flags=_FUSED))
_register(operator.truediv, 2, lambda builder, a, b: builder.fdiv(a, b))
_register(max, 2, lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
_register(min, 2, lambda builder, a, b: builder.select(builder.fcmp_ordered("<", a, b), a, b))
_register(abs, 1, lambda builder, a: builder.call(_of_llvm(builder, "fabs", a.type, 1), [a]))


def _spread(context, builder, lanes: Lanes, kind, value):
    value = context.cast(builder, value, kind, lanes.dtype)
    undefined = ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined)
    register = builder.insert_element(undefined, value, _index(0))
    register = builder.shuffle_vector(register, undefined, _order([0] * WIDTH))
    return _packed(context, builder, lanes, [register] * lanes.n_registers)


def _transposed(builder, rows: list) -> list:
    """Eight registers, transposed in three rounds: pairs of numbers, then of pairs, then of halves."""
    for distance, (low, high) in (
        (1, ([0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15])),
        (2, ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])),
        (4, ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])),
    ):
        mixed = list(rows)
        for i in range(WIDTH):
            if not i & distance:
                pair = rows[i], rows[i + distance]
                mixed[i], mixed[i + distance] = (builder.shuffle_vector(*pair, _order(order)) for order in (low, high))
        rows = mixed
    return rows


def _check_contiguous(array: types.Array) -> None:
    if array.layout != "C":
        raise TypingError("Entries are counted through all rows of an array: it must be contiguous.")


def _multiply_add(builder, a, b, c):
    return builder.fadd(builder.fmul(a, b, flags=_FUSED), c, flags=_FUSED)


def _multiply_add_once(builder, a, b, c):
    if not _CAN_FUSE:
        return builder.fadd(builder.fmul(a, b), c)
    return builder.call(_of_llvm(builder, "fma", a.type, 3), [a, b, c])


def _of_llvm(builder, name: str, register: ir.VectorType, n_arguments: int):
    single = isinstance(register.element, ir.FloatType)
    name = f"llvm.{name}.v{register.count}{'f32' if single else 'f64'}"
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(register, [register] * n_arguments), name)


def _loaded(context, builder, array_type: types.Array, array, start, n_registers: int) -> list:
    registers = []
    for pointer, alignment in _pointers(context, builder, array_type, array, start, n_registers):
        registers.append(builder.load(pointer))
        registers[-1].align = alignment
    return registers


def _registers(builder, lanes) -> list:
    return [builder.extract_value(lanes, i) for i in range(lanes.type.count)]


def _packed(context, builder, lanes: Lanes, registers: list):
    value = ir.Constant(context.get_value_type(lanes), ir.Undefined)
    for i, register in enumerate(registers):
        value = builder.insert_value(value, register, i)
    return value


def _pointers(context, builder, array_type: types.Array, array, start, n_registers: int):
    """Where each register's entries of an array begin, and the bytes of which that is a multiple."""
    item = context.get_value_type(array_type.dtype)
    data = context.make_array(array_type)(context, builder, array).data
    for i in range(n_registers):
        place = builder.add(start, ir.Constant(start.type, WIDTH * i))
        pointer = builder.bitcast(builder.gep(data, [place]), ir.VectorType(item, WIDTH).as_pointer())
        yield pointer, context.get_abi_sizeof(item)


def _index(number: int):
    return ir.Constant(ir.IntType(32), number)


def _order(numbers):
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), numbers)
