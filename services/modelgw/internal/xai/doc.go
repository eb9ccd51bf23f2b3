// Package xai is xAI's chat and batch APIs over gRPC, as far as the provider grok speaks them: generated from
// proto/third_party/xai/api/v1 by `make generate`. It is no part of the platform's own protocol.
package xai
