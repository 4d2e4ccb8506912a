"""Language models over a stream of text whose segments follow each other, with the state of attention carried on."""
