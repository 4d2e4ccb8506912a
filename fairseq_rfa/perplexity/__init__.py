"""The program perplexity: how well a language model predicts a text that it reads in segments."""
