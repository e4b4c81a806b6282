"""The arithmetic of the experiments with sigmoid belief networks; the experiments themselves are run by hand."""

from collections import Counter

import numpy as np
import pytest

from experiments.belief_networks import gan, paper_recipe, tiles
from experiments.belief_networks import mnist as run
from experiments.belief_networks.scoring import Scored, majority, score
from experiments.benchmarks import sbn as benchmark
from vips.datasets import load_digits_binary

# (S, T, the paper's claim of ε at σ = 1 and δ = 1e-4)
CLAIMS = [(400, 150, 2.3468), (800, 75, 2.398), (1600, 37, 3.2262), (3200, 18, 4.8253)]


@pytest.mark.parametrize(("batch_size", "n_steps", "epsilon"), CLAIMS)
def test_the_recipe_claims_what_the_paper_does(batch_size, n_steps, epsilon):
    assert paper_recipe.claimed_epsilon(batch_size, n_steps, 1e-4) == pytest.approx(epsilon, abs=1e-4)


@pytest.mark.parametrize(("batch_size", "n_steps", "epsilon"), CLAIMS)
def test_noise_of_strong_composition_inverts_to_epsilon(batch_size, n_steps, epsilon):
    q = batch_size / 50_000
    sigma = paper_recipe.sigma_by_strong_composition(epsilon, 1e-4, q, n_steps)
    step = np.sqrt(2 * np.log(1.25e9)) / sigma  # back from σ to ε of a step, then composed
    amplified = np.log1p(q * np.expm1(step))
    slack = 1e-4 - n_steps * q * 1e-9
    total = np.sqrt(2 * n_steps * np.log(1 / slack)) * amplified + n_steps * amplified * np.expm1(amplified)
    assert total == pytest.approx(epsilon, rel=1e-6)
    assert step > 1.0  # where its Gaussian formula is not valid


def test_the_recipe_learns_without_noise_and_makes_no_claim():
    digits = load_digits_binary().data
    training, scored = digits[:1500], Scored(digits[1500:])
    model = paper_recipe.fit(training, 10, batch_size=30, sigma=0.0, seed=0)
    known = score(majority(training), scored, 0)["hidden"]
    assert score(model.reconstruct, scored, 0)["hidden"] > known + 0.02
    assert not hasattr(model, "privacy_")


def test_noise_of_the_recipe_is_root_seven_times_each_sensitivity():
    J, K, S = 12, 9, 50
    shapes = {"z": K, "y": J, "omega": J, "omega_z": (J, K), "y_z": (J, K), "omega_zz": (J, K * (K + 1) // 2)}
    rng = np.random.default_rng(0)
    means = {name: np.zeros(shape) for name, shape in shapes.items()}
    draws = [paper_recipe._noisy(means, S, 1.0, rng)["omega_zz"] for _ in range(40)]
    assert np.std(draws) == pytest.approx(np.sqrt(7) * np.sqrt(J) * K / (4 * S), rel=0.03)
    clamped = [paper_recipe._noisy(means, S, 1.0, rng)["y_z"] for _ in range(200)]
    # clamping leaves the positive part of zero-mean noise, whose mean is s / √(2π)
    assert np.mean(clamped) == pytest.approx(np.sqrt(7 * J * K) / S / np.sqrt(2 * np.pi), rel=0.05)


def test_tiles_predict_hidden_pixels_from_their_own_tile_then_from_those_around():
    side = 7  # tiles at the border are one pixel wide
    image = np.zeros((side, side), bool)
    image[:3, :3] = image[6, 6] = True
    observed = np.ones((side, side), bool)
    observed[0, 0] = observed[1, 2] = False
    hidden_tile = np.zeros((1, side, side), bool)
    hidden_tile[0, :6, :6] = True
    unseen = np.ones((side, side), bool)
    unseen[3:6, 3:6] = False
    predict = lambda x, seen: tiles.predict(x.reshape(1, -1), seen.reshape(1, -1)).reshape(side, side)  # noqa: E731
    np.testing.assert_array_equal(predict(image, observed), image)
    assert predict(hidden_tile[0], unseen)[3:6, 3:6].all()  # its neighbours are on
    assert not predict(image, np.zeros((side, side), bool)).any()


def test_hidden_pixels_are_not_passed_on():
    images = np.random.default_rng(0).random((50, 30)) < 0.5
    scored = Scored(images)

    def cheat(seen, observed):
        assert not seen[~observed].any()
        return seen

    result = score(cheat, scored, 0)
    assert result["observed"] == 1.0
    assert result["hidden"] == pytest.approx(1.0 - images[~scored.observed].mean())


def test_table_says_what_is_no_guarantee():
    base = {"hidden": [0.91, 0.93], "observed": [0.95, 0.95], "seconds": [2.0, 4.0], "noise_multiplier": 1.0}
    rows = [base | {"method": "ours", "epsilon": 0.48}, base | {"method": "theirs", "claimed": 2.35, "batch_size": 400}]
    ours, theirs = run.table("table", rows, "MNIST", "markdown").splitlines()[4:]
    assert ours == "| ours |  |  | 1.00 | 0.48 | 0.9200 (0.9100 to 0.9300) | 0.9500 (0.9500 to 0.9500) | 2 | 3 |"
    assert "claims 2.35 (no guarantee)" in theirs


def test_products_of_a_step_are_recorded_as_they_are_called():
    from vips.models.belief_networks import inference as sbn_inference

    calls, recording = Counter(), {"on": True}
    a, b = np.ones((5, 3)), np.ones((4, 3)).T
    with benchmark.recorded(calls, recording):
        np.testing.assert_array_equal(sbn_inference.rowwise_product(a, b), a @ b)
        recording["on"] = False
        sbn_inference.rowwise_product(a, b)
    assert calls == {((5, 3), (3, 4), "float64", "C", "F"): 1}
    benchmark.replay(calls)()


def test_tables_of_the_benchmark_are_as_wide_as_their_heads():
    names = "step_s", "best_step_s", "products_s", "best_products_s", "e_step_s", "view_s", "ratio", "gflop"
    row = {"covariance": "diagonal", "dtype": "float64", "private": True, "n_hidden": 100} | dict.fromkeys(names, 0.5)
    row |= {"threads": 1, "peak_gflops": {"float32": 100.0, "float64": 50.0}}
    report = benchmark.report([row], {"diagonal": 700.0, "full": 900.0, "loading": 300.0})
    assert len({line.count("|") for line in report.splitlines() if line.startswith("|")}) == 1
    assert "the fit 400 and 600 MiB" in report


@pytest.mark.parametrize(("sign", "clip"), [(-1.0, 0.3), (1.0, np.inf)])
def test_gradients_of_a_discriminator_are_clipped_image_by_image(sign, clip):
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install --group torch")
    torch.manual_seed(0)
    layers, images = [torch.nn.Linear(7, 5), torch.nn.Linear(5, 1)], 3.0 * torch.randn(9, 7)
    parts = [part for layer in layers for part in (layer.weight, layer.bias)]
    expected = [torch.zeros_like(part) for part in parts]
    for i in range(len(images)):
        scores, _ = gan._scores(layers, images[i : i + 1])
        gradients = torch.autograd.grad(torch.nn.functional.softplus(sign * scores).sum(), parts)
        norm = float(sum((gradient**2).sum() for gradient in gradients).sqrt())
        expected = [old + min(1.0, clip / norm) * new for old, new in zip(expected, gradients, strict=True)]
    for total, wanted in zip(gan._sums(layers, images, sign, clip), expected, strict=True):
        torch.testing.assert_close(total, wanted)
