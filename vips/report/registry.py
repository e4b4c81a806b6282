"""What a report tells the registry of differential privacy deployments (registry.opendp.org)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vips.core.units import is_group
from vips.report import words

if TYPE_CHECKING:
    from vips.report.report import PrivacyReport

__all__ = ["entry"]

_PEOPLE_SAY = "name data_curators description intended_use data_product_type data_product_region data_product_sector"
_MECHANISMS = ("Mechanism", "Encoder", "Fit", "Assumed", "Randomness", "Arithmetic", "Fingerprint", "Versions")


def entry(report: PrivacyReport) -> dict:
    """Fields of the registry, as JSON or YAML can hold them; None for what people have to say."""
    said = {heading: "; ".join(items) for heading, items in words.sections(report)}
    mechanisms = [f"{heading}: {said[heading]}" for heading in _MECHANISMS if heading in said]
    fields = {
        "basic": dict.fromkeys(_PEOPLE_SAY.split()),
        "dp_variant": {"variant_name": "Approximate DP", "unprotected_quantities": said["Public by declaration"]},
        "privacy_loss": {
            "privacy_unit": "User-level" if is_group(report.unit) else "Record-level", "privacy_unit_details": said["Unit"],
            "privacy_parameters": {"epsilon": report.epsilon(), "delta": report.delta},
            "privacy_parameters_details": f"{said['Guarantee']}. Not covered: {said['Not covered']}",
        },
        "deployment_model": {"model_name": "Central", "release_type": "One release", "access_type": "Non-interactive"},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": f"{said['Preprocessing']}. Tuning: {said['Tuning']}",
            "mechanisms": "\n".join(mechanisms), "composition": said["Ledger"], "post_processing": said["Released"],
        },
    }  # fmt: skip
    return {"deployment": fields}
