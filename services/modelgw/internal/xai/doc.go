// Package xai is xAI's APIs for chat, batches and tokens over gRPC, as far as the provider grok speaks them: generated
// from proto/third_party/xai/api/v1 by `make generate`. It is no part of the platform's own protocol.
package xai

// ConversationHeader brings the requests of a conversation to the server whose prompt cache has it:
// https://docs.x.ai/developers/advanced-api-usage/prompt-caching/maximizing-cache-hits.
const ConversationHeader = "x-grok-conv-id"
