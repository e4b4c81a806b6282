"""Phases of a model by name, fits that end early, and the arrays of a posterior."""

from dataclasses import replace

from vips.core.phases import completed, phases_of


class Stop(Exception):
    """Ends a fit."""


def stopped_after(model, step):
    """The model, with a fit that ends before it uses the total of step ``step + 1``."""
    calls = []

    def stopping(update):
        def stops(*state):
            calls.append(1)
            if len(calls) == step + 1:
                raise Stop
            return update(*state)

        return stops

    return with_updates(model, stopping)


def with_updates(model, changed, step_size=lambda phase: phase.step_size):
    """The model, whose phases have updates that ``changed`` makes of theirs, and other step sizes."""
    phases = model.phases
    model.phases = lambda n_steps: [
        replace(phase, update=changed(phase.update), end=phase.end and changed(phase.end), step_size=step_size(phase))
        for phase in completed(model, phases(n_steps), n_steps)
    ]
    return model


def phase_of(model, name, n_steps=60):
    """The phase of this name of a fit of so many steps."""
    return next(phase for phase in phases_of(model, n_steps) if phase.name == name)
