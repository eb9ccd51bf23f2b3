package openai

// KindAt is Kind with the vendor at another address, which a test can serve.
var KindAt = kindAt
