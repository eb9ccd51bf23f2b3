package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/tokenlimit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript/transcripttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs/plan"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// script answers for models by name: each gives its outputs in order.
type script struct {
	mu      sync.Mutex
	outputs map[string][]scripted
	repeat  bool // the last output repeats
}

// scripted is an output and how long it takes.
type scripted struct {
	output *modelv1.ModelOutput
	delay  time.Duration
}

// priced is a scripted output with its cost, which the model gateway adds where it has prices; nil are none.
func priced(s scripted, prices *modelv1.Prices) scripted {
	if prices != nil {
		s.output.Usage.TotalCost = new(chat.Cost(prices, s.output.GetUsage(), false))
	}
	return s
}

var errNoOutput = errors.New("the script has no further output")

// answer implements [servicetest.Models].Answer.
func (s *script) answer(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
	s.mu.Lock()
	name := nameOf(r)
	left := s.outputs[name]
	if len(left) == 0 {
		s.mu.Unlock()
		return nil, errNoOutput
	}
	if len(left) > 1 || !s.repeat {
		s.outputs[name] = left[1:]
	}
	s.mu.Unlock()
	return left[0].output, retry.Sleep(ctx, left[0].delay)
}

// unused counts the outputs that no call requested.
func (s *script) unused() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]any{}
	for name, left := range s.outputs {
		if len(left) > 0 {
			counts[name] = len(left)
		}
	}
	return counts
}

func nameOf(r *modelv1.GenerateRequest) string {
	_, name, _ := strings.Cut(r.GetModel(), "/")
	return name
}

// scriptedTools are the tools that cases name.
func scriptedTools() map[string]servicetest.Tool {
	const object = `{"type": "object", "properties": %s, "required": %s, "additionalProperties": false}`
	schema := func(properties string, required ...string) string {
		list, _ := json.Marshal(append([]string{}, required...))
		return fmt.Sprintf(object, properties, list)
	}
	text := func(c servicetest.Call, name string) string { value, _ := c.Arguments[name].(string); return value }
	number := func(c servicetest.Call, name string) float64 { value, _ := c.Arguments[name].(float64); return value }
	return map[string]servicetest.Tool{
		"add": {
			Schema: schema(`{"x": {"type": "integer"}, "y": {"type": "integer"}}`, "x", "y"), Parallel: true,
			Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
				return servicetest.Text(strconv.FormatFloat(number(c, "x")+number(c, "y"), 'f', -1, 64)), nil
			},
		},
		"note": {
			Schema: schema(`{"text": {"type": "string"}}`, "text"),
			Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
				return servicetest.Text("noted: " + text(c, "text")), nil
			},
		},
		"wait": {
			Schema: schema(`{"seconds": {"type": "number"}}`, "seconds"),
			Run: func(ctx context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
				seconds, result := time.Duration(number(c, "seconds")*float64(time.Second)), servicetest.Text("waited")
				result.Timing = &effectv1.Timing{Working: durationpb.New(seconds), Attempts: 1}
				return result, retry.Sleep(ctx, seconds)
			},
		},
		"big": {
			Schema: schema(`{"count": {"type": "integer"}, "unit": {"type": "string"}}`, "count"),
			Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
				return servicetest.Text(strings.Repeat(cmp.Or(text(c, "unit"), "x"), int(number(c, "count")))), nil
			},
		},
		"memory": { // Its definition has about the size of the recorded one.
			Schema: schema(fmt.Sprintf(`{"command": {"type": "string", "description": %q}}`, strings.Repeat("d", 3200)), "command"),
			Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
				return servicetest.Text("saved"), nil
			},
		},
		"noop": {
			Schema: schema(`{}`),
			Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
				return servicetest.Text("done"), nil
			},
		},
		"picture": {
			Schema: schema(`{"label": {"type": "string"}}`, "label"),
			Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
				return &toolv1.ToolResult{Content: chat.ListContent(chat.TextPart(text(c, "label")), chat.ImagePart("data:image/png;base64,AAAA"))}, nil
			},
		},
		"ask_model": {
			Schema: schema(`{"prompt": {"type": "string"}}`, "prompt"),
			Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
				return nil, errors.New("a tool cannot ask a model here")
			},
		},
		"hand_in": {
			Schema: schema(`{"answer": {"type": "string"}}`, "answer"),
			Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
				if strings.HasPrefix(text(c, "answer"), "bad") {
					return failed(toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, "refused"), nil
				}
				return servicetest.Text(strings.ToUpper(text(c, "answer"))), nil
			},
		},
		"fail": {
			Schema: schema(`{"kind": {"type": "string"}, "text": {"type": "string", "default": "went wrong"}}`, "kind"),
			Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
				message := text(c, "text")
				if message == "" {
					message = "went wrong"
				}
				return failWith(text(c, "kind"), message)
			},
		},
	}
}

func failed(kind toolv1.ToolErrorType, message string) *toolv1.ToolResult {
	return &toolv1.ToolResult{Content: chat.TextContent(""), Error: &toolv1.ToolCallError{Type: kind, Message: message}}
}

// failWith fails as the tool `fail` does: some kinds are for the model to read, others end the run.
func failWith(kind, message string) (*toolv1.ToolResult, error) {
	switch kind {
	case "tool_error":
		return failed(toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, message), nil
	case "parsing":
		return failed(toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, message), nil
	case "timeout":
		return failed(toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, message), nil
	case "unicode":
		return failed(toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNICODE_DECODE, "no utf-8: invalid start byte"), nil
	case "permission":
		return failed(toolv1.ToolErrorType_TOOL_ERROR_TYPE_PERMISSION, "Permission denied: "+message), nil
	case "not_found":
		return failed(toolv1.ToolErrorType_TOOL_ERROR_TYPE_FILE_NOT_FOUND, "there is no file "+message), nil
	case "is_directory":
		return failed(toolv1.ToolErrorType_TOOL_ERROR_TYPE_IS_A_DIRECTORY, "Is a directory: "+message), nil
	case "null_byte":
		return failed(toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, "an argument of fail has a null byte"), nil
	default:
		return nil, errors.New(message)
	}
}

// limits reads recorded bounds.
func limits(recorded map[string]any) (*agentv1.RunLimits, error) {
	bounds := &agentv1.RunLimits{}
	for name, value := range recorded {
		if text, ok := value.(string); ok && name == "token_limit" {
			tokens, formula, err := tokenlimit.Parse(text)
			if err != nil {
				return nil, err
			}
			bounds.Tokens, bounds.TokenFormula = &tokens, formula
			continue
		}
		number, err := strconv.ParseFloat(fmt.Sprint(value), 64)
		if err != nil {
			return nil, err
		}
		switch name {
		case "token_limit":
			bounds.Tokens = new(int64(number))
		case "message_limit":
			bounds.Messages = new(int32(number))
		case "turn_limit":
			bounds.Turns = new(int32(number))
		case "cost_limit":
			bounds.Cost = &number
		case "time_limit":
			bounds.Time = durationpb.New(time.Duration(number * float64(time.Second)))
		case "working_limit":
			bounds.WorkingTime = durationpb.New(time.Duration(number * float64(time.Second)))
		default:
			return nil, fmt.Errorf("no bound is named %s", name)
		}
	}
	return bounds, nil
}

// decode reads a part of a case into a value.
func decode(t *goldentest.T, recorded, into any) {
	document, err := json.Marshal(recorded)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(document, into))
}

// asJSON is a value as JSON has it.
func asJSON(t *goldentest.T, value any) (plain any) {
	decode(t, value, &plain)
	return plain
}

// recordedForm writes messages as they are recorded, which is without the model that answered and without the type of a
// call.
func recordedForm(t *goldentest.T, messages []*modelv1.ChatMessage) []any {
	all := []any{}
	require.NoError(t, json.Unmarshal(chat.MessagesJSON(messages), &all))
	for _, m := range all {
		message, _ := m.(map[string]any)
		delete(message, "model")
		calls, _ := message["tool_calls"].([]any)
		for _, c := range calls {
			call, _ := c.(map[string]any)
			delete(call, "type")
		}
	}
	return all
}

// transcriptOf reads the run's journal as a log.
func (f *fleet) transcriptOf(name string) []*transcript.Event {
	f.T.Helper()
	events, err := transcripttest.Of(f.Events(name))
	require.NoError(f.T, err)
	return events
}

// launch creates the run of a plan.
func (f *fleet) launch(plan *plan.Plan) string {
	f.T.Helper()
	head, err := f.Runs.Start(context.Background(), plan, runs.Key{}, "user:test")
	require.NoError(f.T, err)
	return head.Name
}

// limitOf is the bound that ended a run, as it is recorded.
func limitOf(s *run.State) any {
	if s.Limit == nil {
		return nil
	}
	return map[string]any{"type": enum.Word(s.Limit.GetType()), "limit": s.Limit.GetLimit()}
}
