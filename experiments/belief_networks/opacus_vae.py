"""A variational autoencoder with DP-SGD by Opacus; a script of its own, for an interpreter with ``torch`` and ``opacus``.

``python opacus_vae.py SOURCE TARGET``: SOURCE is an .npz file with ``training`` images, ``seen`` test images whose hidden
pixels are 0, the mask ``observed``, and ``settings`` as JSON; TARGET gets the probabilities of all pixels of the test images,
or with the setting ``drawn`` of as many images that the decoder draws.

The encoder sees the observed pixels and the mask, and is trained with masks of its own: a random half of each image. So it is
trained for exactly what is scored. The decoder has one Bernoulli for each pixel; the loss is minus the evidence lower bound,
where hidden pixels are predicted as well.
"""

import json
import sys
import time
import warnings

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

warnings.filterwarnings("ignore")


class MaskedVAE(nn.Module):
    """q(z | observed pixels, mask) and p(pixels | z), with one hidden layer each."""

    def __init__(self, n_pixels: int, n_hidden: int, n_latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2 * n_pixels, n_hidden), nn.Tanh(), nn.Linear(n_hidden, 2 * n_latent))
        self.decoder = nn.Sequential(nn.Linear(n_latent, n_hidden), nn.Tanh(), nn.Linear(n_hidden, n_pixels))

    def forward(self, seen, mask, noise):
        mean, log_variance = self.encoder(torch.cat([2.0 * seen - mask, mask], dim=1)).chunk(2, dim=1)
        logits = self.decoder(mean + noise * torch.exp(0.5 * log_variance))
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1.0 - log_variance).sum(dim=1)
        return logits, divergence


def main() -> None:
    source = np.load(sys.argv[1])
    training = torch.tensor(source["training"], dtype=torch.float32)
    settings, start = json.loads(str(source["settings"])), time.perf_counter()
    torch.manual_seed(settings["seed"])
    model = MaskedVAE(training.shape[1], settings["n_hidden"], settings["n_latent"])
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(training), batch_size=settings["batch_size"])
    if settings["epsilon"] is not None:
        model, optimizer, _, loader = PrivacyEngine().make_private_with_epsilon(
            module=model, optimizer=optimizer, data_loader=loader, target_epsilon=settings["epsilon"],
            target_delta=settings["delta"], epochs=settings["epochs"], max_grad_norm=settings["clip_norm"],
            grad_sample_mode="ghost", criterion=nn.MSELoss(),
        )  # fmt: skip
    for _ in range(settings["epochs"]):
        for (images,) in loader:
            if not len(images):
                continue
            optimizer.zero_grad()
            mask = (torch.rand_like(images) < 0.5).float()
            logits, divergence = model(images * mask, mask, torch.randn(len(images), settings["n_latent"]))
            fit = binary_cross_entropy_with_logits(logits, images, reduction="none").sum(dim=1)
            loss = (
                fit + divergence
            )  # shape (n,): Opacus' text says (n, 1), with which it would multiply all pairs and clip nothing
            if settings["epsilon"] is None:
                loss.mean().backward()
            else:  # norms of gradients by the layers' inputs: no gradient of a single image is formed
                DPTensorFastGradientClipping(model, optimizer, loss).backward()
            optimizer.step()
    with torch.no_grad():
        seen, mask = (torch.tensor(source[name], dtype=torch.float32) for name in ("seen", "observed"))
        logits, _ = model(seen, mask, torch.zeros(len(seen), settings["n_latent"]))
        if settings["drawn"]:
            logits = model.decoder(torch.randn(len(seen), settings["n_latent"]))
    np.save(sys.argv[2], torch.sigmoid(logits).numpy())
    print("seconds:", time.perf_counter() - start)


if __name__ == "__main__":
    main()
