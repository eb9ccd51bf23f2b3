package tokenizer_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/tokenizer"
)

func TestGoldenTokenCount(t *testing.T) {
	t.Parallel()
	// Usage of a scripted model is package mockllm's.
	cases := slices.DeleteFunc(goldentest.Load(t, "core/token-count.jsonl"), func(c goldentest.Case) bool { return c.Op() == "mock_usage" })
	goldentest.Run(t, "token-count", cases, func(t *goldentest.T, c goldentest.Case) {
		switch c.Op() {
		case "count_media":
			t.Equal(c.At("expect"), tokens.Media(media(t, c).GetContent().GetList().GetParts()[0]))
		case "count_text":
			t.Equal(c.At("expect", "estimate"), tokenizer.Text(text(c)))
		case "count_messages":
			t.Equal(c.At("expect"), tokenizer.Messages(conversation(t, c.At("input", "messages"))))
		case "count_tools":
			document, err := json.Marshal(c.At("input"))
			require.NoError(t, err)
			given, err := chattest.Tools(document)
			require.NoError(t, err)
			t.Equal(c.At("expect"), tokenizer.Tools(given))
		default:
			t.Skipf("no driver for %q", c.Op())
		}
	})
}

// text is the text of a case, which may be written as a repetition.
func text(c goldentest.Case) string {
	if unit, repeated := c.At("input", "repeat").(string); repeated {
		n, _ := c.At("input", "times").(json.Number).Int64()
		return strings.Repeat(unit, int(n))
	}
	given, _ := c.At("input").(string)
	return given
}

// conversation is the messages of a case: a list, or the text of a user.
func conversation(t *goldentest.T, given any) []*modelv1.ChatMessage {
	t.Helper()
	if text, ok := given.(string); ok {
		return []*modelv1.ChatMessage{chat.User(text)}
	}
	list, _ := given.([]any)
	var all []*modelv1.ChatMessage
	for _, item := range list {
		document, err := json.Marshal(item)
		require.NoError(t, err)
		m, err := chat.ParseMessage(document)
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}

// media is a message with the case's media; long data is written as a prefix and a number of characters.
func media(t *goldentest.T, c goldentest.Case) *modelv1.ChatMessage {
	t.Helper()
	part, _ := c.At("input").(map[string]any)
	given := map[string]any{}
	for name, value := range part {
		given[name] = value
	}
	if prefix, ok := part["uri_prefix"].(string); ok {
		n, err := part["then_A_times"].(json.Number).Int64()
		require.NoError(t, err)
		given[part["type"].(string)] = prefix + strings.Repeat("A", int(n))
	}
	document, err := json.Marshal(map[string]any{"role": "user", "content": []any{given}})
	require.NoError(t, err)
	m, err := chat.ParseMessage(document)
	require.NoError(t, err)
	return m
}

func TestNothingCountsOneOrNone(t *testing.T) {
	t.Parallel()
	assert.Equal(t, int64(1), tokenizer.Messages(nil))
	assert.Zero(t, tokenizer.Tools(nil))
}

func TestALongTextIsTakenToBeLikeItsBeginning(t *testing.T) {
	t.Parallel()
	const sentence = "Ünïcödé wörds, and 世界. "
	// Only the second is of more than 1 MiB.
	short, long := strings.Repeat(sentence, 20_000), strings.Repeat(sentence, 40_000)
	whole := 2 * tokenizer.Text(short)
	assert.InEpsilon(t, whole, tokenizer.Text(long), 0.001)
	halves := []*modelv1.ChatMessage{chat.User(long[:len(long)/2]), chat.User(long[len(long)/2:])}
	assert.InEpsilon(t, whole, tokenizer.Messages(halves), 0.001)
}

// A text that a tokenizer reads in more than linear time would hold a processor for minutes.
func TestAPatternWithoutEndIsCounted(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"x", " ", "\n", "世", "\xff", "!", "aB", " \n", "\r\n\t", "\u00a0\n\n"} {
		assert.Positive(t, tokenizer.Text(strings.Repeat(unit, 1<<20/len(unit))), "%q", unit)
	}
}

func TestALongBlankStretchCountsAsItsLinesDo(t *testing.T) {
	t.Parallel()
	const line = "  \n"
	few := tokenizer.Text(strings.Repeat(line, 80)) // in one part
	assert.InEpsilon(t, 100*few, tokenizer.Text(strings.Repeat(line, 8000)), 0.02)
	assert.InEpsilon(t, 100*few, tokenizer.Text("word"+strings.Repeat(line, 8000)+"word"), 0.02)
}
