"""``python -m experiments generated_images``: images drawn from networks, beside an autoencoder and adversarial networks.

Fitted: the 60,000 training images of MNIST (pixel above 0), δ = 1e-4. Every method draws 10,000 images. Two numbers compare
them with the test images: the squared Fréchet distance of their first 50 principal components, and the total variation between
the shares of the ten digits, as a logistic regression fitted to training images reads them. Both are 0 at best.

A generative adversarial network trains a discriminator to tell training images from generated ones, and a generator to
deceive it: by the loss log(1 - D) ("minimax") or -log D ("non-saturating"). With a budget, the discriminator is trained by
DP-SGD: Poisson samples, gradients of training images clipped one by one, Gaussian noise on their sum. The generator sees
training images through the discriminator alone. Noise is PyTorch's, and the number of images is taken for public.

PyTorch is in the dependency group ``torch``; the autoencoder needs an interpreter with Opacus, as in ``other_tools``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np
from scipy.linalg import sqrtm
from scipy.special import expit
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from experiments.options import fill, folder_of, parser_of
from experiments.other_tools import autoencoder
from experiments.results import as_table, write_json, write_table
from experiments.stand_ins import mnist
from vips import PrivacyPlan, SigmoidBeliefNetwork

__all__ = ["adversarial", "main"]

DELTA, N_DRAWN, N_READ, N_COMPONENTS, N_HIDDEN = 1e-4, 10_000, 10_000, 50, 100
LOSSES = ("minimax", "non-saturating")
N_LATENT, WIDTH, BATCH, N_STEPS, CLIP, RATE = 32, 128, 1_024, 1_000, 1.0, 5e-4
Images = np.ndarray  # (n, 784), booleans or probabilities


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments generated_images", __doc__, "epsilons", "data", "format")
    parser.add_argument("--opacus", metavar="PYTHON", help="interpreter that has torch and opacus")
    parser.add_argument("--steps", type=int, help=f"of adversarial networks; {N_STEPS:,} by default")
    options = parser.parse_args(arguments)
    fill(options, {"epsilons": (1.0, 2.35), "steps": N_STEPS}, {"epsilons": (1.0,), "steps": 20})
    folder, images = folder_of("generated_images", options), mnist(options.quick and not options.data)
    n = 500 if options.quick else None
    training, test = images.data[:n], images.test_data[:n]
    score = scorer(training, images.target[:n], test)
    rows = [{"method": "the training images", "epsilon": None, "seconds": 0.0} | score(training)]
    for method, draw in methods(training, options):
        for epsilon in tqdm([None, *options.epsilons], desc=method, leave=False, disable=None):
            start = time.perf_counter()
            drawn = np.random.default_rng(0).random((N_DRAWN, test.shape[1])) < draw(epsilon)
            rows.append({"method": method, "epsilon": epsilon, "seconds": time.perf_counter() - start} | score(drawn))
            tqdm.write(str(rows[-1]))
    heads = ["method", "ε", "squared Fréchet distance", "digits, total variation", "seconds"]
    cells = [
        [
            row["method"],
            "" if row["epsilon"] is None else f"{row['epsilon']:g}",
            f"{row['distance']:.1f}",
            f"{row['digits']:.3f}",
            f"{row['seconds']:.0f}",
        ]
        for row in rows
    ]
    text = as_table(
        heads, cells, options.format, f"{'Generated stand-ins' if images.generated else 'MNIST'}; δ = {DELTA:g}."
    )
    print(text)
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_table(folder, "results", text, options.format)


def scorer(training: Images, labels: np.ndarray, test: Images) -> Callable[[Images], dict[str, float]]:
    """Distances of images from the test images."""
    components = PCA(N_COMPONENTS, random_state=0).fit(test)
    reader = LogisticRegression(C=0.01, max_iter=200).fit(training[:N_READ], labels[:N_READ])

    def shares(images: Images) -> np.ndarray:
        return np.bincount(reader.predict(images), minlength=10) / len(images)

    def moments(images: Images) -> tuple[np.ndarray, np.ndarray]:
        values = components.transform(images)
        return values.mean(axis=0), np.cov(values.T)

    (mean, cov), digits = moments(test), shares(test)

    def score(images: Images) -> dict[str, float]:
        other_mean, other_cov = moments(images)
        cross = np.trace(sqrtm(cov @ other_cov).real)
        distance = ((mean - other_mean) ** 2).sum() + np.trace(cov) + np.trace(other_cov) - 2.0 * cross
        return {"distance": float(distance), "digits": 0.5 * float(np.abs(digits - shares(images)).sum())}

    return score


def methods(training: Images, options) -> Iterator[tuple[str, Callable[[float | None], Images]]]:
    """Names, and functions from ε (None without privacy) to the probabilities of the pixels of drawn images."""

    def network(epsilon: float | None) -> Images:
        plan = PrivacyPlan.non_private(sampling_rate=0.1, n_steps=60)
        if epsilon is not None:
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=0.5, n_steps=20)
        model = SigmoidBeliefNetwork(10 if options.quick else N_HIDDEN, privacy=plan, random_state=0).fit(training)
        on = np.random.default_rng(1).random((N_DRAWN, len(model.intercept_hidden_))) < expit(model.intercept_hidden_)
        return model.inverse_transform(on.astype(float))

    yield "belief network, vips", network
    if options.opacus is None:
        print("The autoencoder is left out: no --opacus PYTHON.")
    else:
        nothing = np.zeros((N_DRAWN, training.shape[1]), bool)
        yield (
            "autoencoder, Opacus",
            lambda epsilon: autoencoder(options.opacus, training, epsilon, drawn=True)(nothing, nothing),
        )
    if find_spec("torch") is None:
        print("Adversarial networks are left out: no PyTorch. `pip install --group torch` installs it.")
        return
    for loss in LOSSES:
        yield f"adversarial, {loss}", lambda epsilon, loss=loss: adversarial(training, epsilon, loss, options.steps)


def adversarial(training: Images, epsilon: float | None, loss: str, n_steps: int, seed: int = 0) -> Images:
    """Fit a generator and a discriminator; draw images."""
    import torch
    from torch.nn.functional import softplus

    rate, noise = min(0.2, BATCH / len(training)), 0.0
    if epsilon is not None:
        plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=rate, n_steps=n_steps)
        noise = plan.noise_multiplier
    torch.manual_seed(seed)
    images, n_pixels = torch.tensor(training, dtype=torch.float32), training.shape[1]
    size = round(rate * len(images))
    generator = torch.nn.Sequential(
        torch.nn.Linear(N_LATENT, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, n_pixels), torch.nn.Sigmoid()
    )
    discriminator = [torch.nn.Linear(n_pixels, WIDTH), torch.nn.Linear(WIDTH, 1)]
    weights = [weight for layer in discriminator for weight in (layer.weight, layer.bias)]
    steps = [torch.optim.Adam(part, lr=RATE, betas=(0.5, 0.999)) for part in (weights, generator.parameters())]
    for _ in range(n_steps):
        real = images[torch.rand(len(images)) < rate]
        fake = generator(torch.randn(size, N_LATENT))
        gradients = _sums(
            discriminator, real, -1.0, CLIP if noise else np.inf
        )  # log(1 + exp(-score)): a training image
        for weight, of_real, of_fake in zip(
            weights, gradients, _sums(discriminator, fake.detach(), 1.0, np.inf), strict=True
        ):
            weight.grad = (of_real + noise * CLIP * torch.randn_like(of_real) + of_fake) / size
        steps[0].step()
        steps[1].zero_grad()
        score = _scores(discriminator, fake)[0]
        (softplus(-score) if loss == "non-saturating" else -softplus(score)).mean().backward()
        steps[1].step()
    with torch.no_grad():
        return generator(torch.randn(N_DRAWN, N_LATENT)).numpy()


def _scores(discriminator: list, images) -> tuple:
    """Scores of images, above 0 for training images; and (inputs, outputs) of each layer."""
    from torch.nn.functional import leaky_relu

    value, layers = images, []
    for layer in discriminator:
        inputs = value if not layers else leaky_relu(value, 0.2)
        value = layer(inputs)
        layers.append((inputs, value))
    return value[:, 0], layers


def _sums(discriminator: list, images, sign: float, clip: float) -> list:
    """Sums over images of the gradients of log(1 + exp(sign × score)), each clipped to norm ``clip`` over all layers."""
    import torch
    from torch.nn.functional import softplus

    scores, layers = _scores(discriminator, images)
    slopes = torch.autograd.grad(softplus(sign * scores).sum(), [outputs for _, outputs in layers])
    # an image's gradient of a layer is slope × (input, 1)ᵀ
    squares = sum((d**2).sum(1) * ((a**2).sum(1) + 1.0) for d, (a, _) in zip(slopes, layers, strict=True))
    share = torch.clamp(clip / torch.sqrt(squares + 1e-30), max=1.0)[:, None]
    return [
        total
        for slope, (inputs, _) in zip(slopes, layers, strict=True)
        for total in ((share * slope).T @ inputs.detach(), (share * slope).sum(0))
    ]
