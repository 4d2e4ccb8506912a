"""Translation in context: windows of sentences of one document, and decoding that goes on from own translations."""
