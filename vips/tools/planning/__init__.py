"""What to expect of a private fit, from public numbers."""

from vips.tools.planning.plan import Recommendation, plan_for
from vips.tools.planning.rehearsal import Rehearsal, rehearse
from vips.tools.planning.study import Study, plan_study

__all__ = ["Recommendation", "Rehearsal", "Study", "plan_for", "plan_study", "rehearse"]
