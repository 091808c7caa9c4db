"""The counts that the hardware would give: requests, sectors, wavefronts."""
