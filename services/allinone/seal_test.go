package allinone_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/allinone"
	"github.com/evalfleet/evalfleet/services/modelgw/modelgwtest"
)

const (
	claudeModel = "anthropic/claude-sonnet-4-5"
	gptModel    = "openai/gpt-5"
	geminiModel = "google/gemini-3-pro"
)

// openSealers starts a server with vendors that seal what their models think, by the models.
func openSealers(t *testing.T) (doors, map[string]*modelgwtest.Sealing) {
	t.Helper()
	at := map[string]*modelgwtest.Sealing{
		claudeModel: modelgwtest.SealingAnthropic(t), gptModel: modelgwtest.SealingOpenAI(t),
		geminiModel: modelgwtest.SealingGoogle(t),
	}
	return open(t, func(c *allinone.Config) {
		m := &c.Modelgw
		m.Anthropic.APIKey, m.Anthropic.BaseURL = config.NewSecret("k"), at[claudeModel].URL
		m.OpenAI.APIKey, m.OpenAI.BaseURL, m.OpenAI.ResponsesAPI = config.NewSecret("k"), at[gptModel].URL, new(true)
		m.Google.APIKey, m.Google.BaseURL = config.NewSecret("k"), at[geminiModel].URL
	}), at
}

// evaluate runs an evaluation of one sample to its end.
func (d doors) evaluate(t *testing.T, spec *agentv1.EvalSpec, input ...*modelv1.ChatMessage) *agentv1.Eval {
	t.Helper()
	spec.Task, spec.Config = "sealed", &modelv1.GenerateConfig{MaxRetries: new(int32(0))}
	samples := &agentv1.SampleList{Samples: []*agentv1.Sample{{Input: input}}}
	spec.Dataset = &agentv1.Dataset{Source: &agentv1.Dataset_Inline{Inline: samples}}
	evals := agentv1.NewEvalServiceClient(d.conn)
	eval, err := evals.CreateEval(t.Context(), &agentv1.CreateEvalRequest{Parent: project, Spec: spec})
	require.NoError(t, err)
	return d.ended(t, eval.GetName())
}

// ended waits for the end of an evaluation.
func (d doors) ended(t *testing.T, eval string) *agentv1.Eval {
	t.Helper()
	evals := agentv1.NewEvalServiceClient(d.conn)
	stream, err := evals.WatchEval(waittest.Context(t), &agentv1.WatchEvalRequest{Name: eval})
	require.NoError(t, err)
	for err == nil {
		_, err = stream.Recv()
	}
	require.ErrorIs(t, err, io.EOF)
	got, err := evals.GetEval(t.Context(), &agentv1.GetEvalRequest{Name: eval})
	require.NoError(t, err)
	return got
}

// messages are those of the first sample in the log of an evaluation, in Inspect's form.
func (d doors) messages(t *testing.T, eval string) []*modelv1.ChatMessage {
	t.Helper()
	r := &agentv1.ExportEvalRequest{Name: eval, Format: agentv1.LogFormat_LOG_FORMAT_JSON}
	stream, err := agentv1.NewEvalServiceClient(d.conn).ExportEval(t.Context(), r)
	require.NoError(t, err)
	var document bytes.Buffer
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		document.Write(chunk.GetChunk())
	}
	var log struct {
		Samples []struct{ Messages json.RawMessage }
	}
	require.NoError(t, json.Unmarshal(document.Bytes(), &log))
	messages, err := chat.ParseMessages(log.Samples[0].Messages)
	require.NoError(t, err)
	return messages
}

// turnsOf are turns of an agent with a model: the evaluation's own if role is empty, else the role's.
func turnsOf(role string) *agentv1.AgentRef {
	params := map[string]any{"submit": false}
	if role != "" {
		params["model"] = role
	}
	document, _ := json.Marshal(params) // Of texts and a bool.
	return &agentv1.AgentRef{Name: "react", ParamsJson: string(document)}
}

// oneAgent is an evaluation by an agent with a model.
func oneAgent(model string) *agentv1.EvalSpec {
	return &agentv1.EvalSpec{Models: []*agentv1.ModelRef{{Model: model}}, Steps: []*agentv1.AgentRef{turnsOf("")}}
}

// succeeded checks that an evaluation succeeded, and shows the latest requests of its vendors if it did not.
func succeeded(t *testing.T, eval *agentv1.Eval, vendors ...*modelgwtest.Sealing) {
	t.Helper()
	if eval.GetState() == agentv1.EvalState_EVAL_STATE_SUCCEEDED {
		return
	}
	for _, v := range vendors {
		t.Log(v.Latest())
	}
	require.FailNow(t, "the evaluation has not succeeded", "%v", eval)
}

// pairTest is a test of models of two vendors on a server; vendors are by the models.
type pairTest func(t *testing.T, d doors, vendors map[string]*modelgwtest.Sealing, own, other string)

// forPairs runs a test for three pairs of models, each on a server of its own.
func forPairs(t *testing.T, test pairTest) {
	t.Helper()
	for own, other := range map[string]string{claudeModel: gptModel, gptModel: geminiModel, geminiModel: claudeModel} {
		t.Run(own+" and "+other, func(t *testing.T) {
			t.Parallel()
			d, vendors := openSealers(t)
			test(t, d, vendors, own, other)
		})
	}
}

// A vendor refuses a seal of another one and an agent's call without its own seal, so that an evaluation of models of
// two vendors in one conversation succeeds only if each gets its own seals and no others.
func TestAnEvaluationHasModelsOfTwoVendorsInOneConversation(t *testing.T) {
	t.Parallel()
	forPairs(t, func(t *testing.T, d doors, vendors map[string]*modelgwtest.Sealing, own, other string) {
		goOn := &agentv1.AgentRef{Name: "user_message", ParamsJson: `{"template": "go on"}`}
		first, second := turnsOf(""), turnsOf("second")
		eval := d.evaluate(t, &agentv1.EvalSpec{
			Models:     []*agentv1.ModelRef{{Model: own}},
			ModelRoles: map[string]*agentv1.ModelRef{"second": {Model: other}},
			Steps:      []*agentv1.AgentRef{first, goOn, second, goOn, first, goOn, second},
		}, chat.User("question"))
		succeeded(t, eval, vendors[own], vendors[other])
		for _, model := range []string{own, other} {
			assert.Len(t, vendors[model].Made(), 4, model)
			assert.Len(t, vendors[model].Returned(), 3, "%s gets all its seals again", model)
		}
	})
}

// A conversation that was read from a log, as a task file has it, goes on with the model of another vendor, and with
// its own.
func TestAConversationFromALogKeepsWhoCanReadItsSeals(t *testing.T) {
	t.Parallel()
	forPairs(t, func(t *testing.T, d doors, vendors map[string]*modelgwtest.Sealing, own, other string) {
		eval := d.evaluate(t, oneAgent(own), chat.User("question"))
		succeeded(t, eval, vendors[own])
		sealed := append(d.messages(t, eval.GetName()), chat.User("go on"))
		for _, model := range []string{other, own} {
			succeeded(t, d.evaluate(t, oneAgent(model), sealed...), vendors[model])
		}
		assert.Len(t, vendors[own].Returned(), 3)
	})
}

// A call that its vendor refused keeps that outcome. An evaluation that is resumed, once the account is mended, makes
// calls of its own.
func TestAnEvaluationGoesOnAfterItsAccountIsMended(t *testing.T) {
	t.Parallel()
	d, vendors := openSealers(t)
	vendors[gptModel].Fail(http.StatusUnauthorized)
	eval := d.evaluate(t, &agentv1.EvalSpec{Models: []*agentv1.ModelRef{{Model: gptModel}}}, chat.User("question"))
	require.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, eval.GetState(), eval)
	vendors[gptModel].Fail(0)
	evals := agentv1.NewEvalServiceClient(d.conn)
	_, err := evals.ResumeEval(t.Context(), &agentv1.ResumeEvalRequest{Name: eval.GetName()})
	require.NoError(t, err)
	eval = d.ended(t, eval.GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), eval)
	assert.Len(t, vendors[gptModel].Made(), 2, "a call of the tool, and the answer")
}
