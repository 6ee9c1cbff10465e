"""The interfaces of other packages over ringattn: ring_flash_attn, dilated (dilated-attention-pytorch)."""
