"""What to expect of a private fit, from public numbers."""

from vips.planning.plan import Recommendation, plan_for
from vips.planning.rehearsal import Rehearsal, rehearse
from vips.planning.study import Study, plan_study

__all__ = ["Recommendation", "Rehearsal", "Study", "plan_for", "plan_study", "rehearse"]
