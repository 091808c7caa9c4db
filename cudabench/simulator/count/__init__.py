"""What the hardware would count: requests, sectors, wavefronts."""
