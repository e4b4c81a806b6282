"""The mean of Pólya-Gamma variables against their tilt: Figure 4 of the paper."""
