package engine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// Every option of a run's configuration is in the calls of its model.
func TestAConfigurationReachesTheCalls(t *testing.T) {
	t.Parallel()
	const options = `{"max_retries": 3, "timeout": 60, "attempt_timeout": 20, "max_connections": 4, "system_message": "Be brief.",
		"max_tokens": 100, "top_p": 0.9, "temperature": 0.5, "stop_seqs": ["END"], "best_of": 2, "frequency_penalty": 0.1,
		"presence_penalty": 0.2, "logit_bias": {"42": 10.0}, "seed": 7, "top_k": 5, "num_choices": 2, "logprobs": true,
		"top_logprobs": 2, "parallel_tool_calls": false, "internal_tools": false, "max_tool_output": 512,
		"reasoning_effort": "medium", "reasoning_tokens": 1024, "reasoning_summary": "auto", "reasoning_history": "none",
		"response_schema": {"name": "s", "json_schema": {"type": "object"}, "strict": true}, "extra_body": {"x": 1}}`
	config, err := chat.ParseConfig([]byte(options))
	require.NoError(t, err)
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("done"))
	s := spec(step("generate", ""))
	s.Config = config
	f.Finish(f.Create(s).Name)
	assert.JSONEq(t, string(chat.ConfigJSON(config)), string(chat.ConfigJSON(f.Models.Requests()[0].GetConfig())))
}
