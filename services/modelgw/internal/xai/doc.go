// Package xai is xAI's chat API over gRPC, as far as the provider grok speaks it: generated from
// proto/third_party/xai/api/v1/chat.proto by `make generate`. It is no part of the platform's own protocol.
package xai
