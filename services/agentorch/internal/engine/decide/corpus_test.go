package decide_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

var update = flag.Bool("update", false, "record journals that are new, and states of another fold version")

// recorded is what a journal of the corpus folds to.
type recorded struct {
	FoldVersion int             `json:"fold_version"`
	Run         json.RawMessage `json:"run"`
	Open        []int64         `json:"open,omitempty"`
	Frames      []string        `json:"frames"`
}

// shapes are runs that are recorded once. A recorded journal stays as it is; a new shape gets a name of its own.
var shapes = map[string]func(t *testing.T) *lab{
	"generate": func(t *testing.T) *lab {
		l := newLab(t)
		l.step(nothing, nil)
		l.step(answers(l.said(assistant("Hello."))), nil)
		return l
	},
	"cancel": func(t *testing.T) *lab {
		l := newLab(t)
		l.step(nothing, nil)
		l.step(func() decide.Facts {
			return decide.Facts{Commands: []inbox.Command{{ID: "cancel", Principal: "user:ada", Request: &agentv1.CancelRunRequest{}}}}
		}, nil)
		l.step(answers(l.said(assistant("late"))), nil)
		return l
	},
	"wait": func(t *testing.T) *lab {
		l := newLab(t)
		l.step(nothing, nil)
		wait := &agentv1.RunWait{Reason: waits.Capacity, RetryTime: timestamppb.New(began.Add(time.Hour))}
		l.step(answers(decide.Answer{Key: l.live.Key(l.live.Open[0].Seq()), Wait: wait}), nil)
		return l
	},
	"children": func(t *testing.T) *lab {
		l := newLab(t, delegates(nil, "one", "two"))
		l.step(nothing, nil)
		l.step(answers(said(l.modelCall("two"), assistant("second"))), nil)
		return l
	},
	"child-limit": func(t *testing.T) *lab {
		l := newLab(t, delegates(&agentv1.RunLimits{Time: durationpb.New(time.Second)}, "one"))
		l.step(nothing, nil)
		l.step(nothing, nil)
		l.step(answers(said(l.modelCall("one"), assistant("late"))), nil)
		return l
	},
}

func jsonOf(t *testing.T, m proto.Message) []byte {
	t.Helper()
	text, err := protojson.Marshal(m)
	require.NoError(t, err)
	var compact bytes.Buffer // The text of protojson differs in its spaces from build to build.
	require.NoError(t, json.Compact(&compact, text))
	return compact.Bytes()
}

// Every journal of the corpus folds to the state that it had when it was recorded.
func TestRecordedJournalsFoldAsBefore(t *testing.T) {
	t.Parallel()
	for name, play := range shapes {
		journal, state := filepath.Join("testdata", "journals", name+".jsonl"), filepath.Join("testdata", "journals", name+".json")
		if _, err := os.Stat(journal); os.IsNotExist(err) && *update {
			var lines bytes.Buffer
			for _, e := range play(t).events {
				lines.Write(append(jsonOf(t, e), '\n'))
			}
			require.NoError(t, os.MkdirAll(filepath.Dir(journal), 0o755))
			require.NoError(t, os.WriteFile(journal, lines.Bytes(), 0o644))
		}
		lines, err := os.ReadFile(journal)
		require.NoError(t, err, "record it with -update")
		s := run.New("projects/p/runs/r", nil)
		for line := range strings.Lines(string(lines)) {
			var e agentv1.Event
			require.NoError(t, protojson.Unmarshal([]byte(line), &e))
			require.NoError(t, s.Apply(&e), name)
		}
		got := recorded{FoldVersion: run.FoldVersion, Run: jsonOf(t, s.View(true))}
		for _, i := range s.Open {
			got.Open = append(got.Open, i.Seq())
		}
		for _, f := range s.Frames() {
			got.Frames = append(got.Frames, f.Span+": "+conversation(f))
		}
		text, err := json.MarshalIndent(got, "", "  ")
		require.NoError(t, err)
		before, err := os.ReadFile(state)
		var old recorded
		if err == nil {
			require.NoError(t, json.Unmarshal(before, &old))
		}
		if *update && old.FoldVersion != run.FoldVersion {
			before = append(text, '\n')
			require.NoError(t, os.WriteFile(state, before, 0o644))
		}
		assert.JSONEq(t, string(before), string(text), "%s: a fold that reads it otherwise needs another run.FoldVersion", name)
	}
}
