"""Phases of a model by name, fits that end early, and the arrays of a posterior."""

from dataclasses import replace

from vips.phases import completed, phases_of


class Stop(Exception):
    """Ends a fit."""


def stopped_after(model, step):
    """The model, with a fit that ends before it uses the total of step ``step + 1``."""
    phases, calls = model.phases, []

    def stopping(update):
        def stops(*state):
            calls.append(1)
            if len(calls) == step + 1:
                raise Stop
            return update(*state)

        return stops

    model.phases = lambda n_steps: [
        replace(phase, update=stopping(phase.update), end=phase.end and stopping(phase.end))
        for phase in completed(model, phases(n_steps), n_steps)
    ]
    return model


def phase_of(model, name, n_steps=60):
    """The phase of this name of a fit of so many steps."""
    return next(phase for phase in phases_of(model, n_steps) if phase.name == name)


def arrays_of(model):
    posterior = model.posterior_
    return posterior if isinstance(posterior, dict) else posterior.to_arrays()
