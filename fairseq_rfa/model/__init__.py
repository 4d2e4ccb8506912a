"""Options, encoder, decoder and architectures of transformer_rfa."""
