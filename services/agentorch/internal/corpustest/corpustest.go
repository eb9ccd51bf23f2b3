// Package corpustest stores recorded journals, and checks that every later fold gives the recorded states.
//
//	engine in a test ── Record ──▶ NAME.jsonl         the events, one a line; never written again
//	fold ───────────── Check ───▶ NAME.states.jsonl  what each event changed in the state, one a line
//
// With the flag -update, Record writes missing journals, and Check writes missing states and those of another fold
// version. A fold with other states needs a version of its own, since the runs of old journals keep theirs.
package corpustest

import (
	"bytes"
	"encoding/json"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

var update = flag.Bool("update", false, "record journals that are new, and states that are new or of another fold version")

const (
	journalSuffix = ".jsonl"
	statesSuffix  = ".states.jsonl"
)

// Record compares an engine's journal with the recorded journal of the name: both must have the same kinds of events.
// With the flag -update it writes a missing journal. It never overwrites one.
func Record(t *testing.T, dir, name string, events iter.Seq2[*agentv1.Event, error]) {
	t.Helper()
	var lines bytes.Buffer
	written := map[string]bool{}
	for e, err := range events {
		require.NoError(t, err)
		written[kindOf(e)] = true
		lines.Write(append(jsonOf(t, e), '\n'))
	}
	path := filepath.Join(dir, name+journalSuffix)
	if _, err := os.Stat(path); os.IsNotExist(err) && *update {
		require.NoError(t, os.MkdirAll(dir, 0o750))
		require.NoError(t, os.WriteFile(path, lines.Bytes(), 0o600))
	}
	recorded := map[string]bool{}
	for _, e := range read(t, path) {
		recorded[kindOf(e)] = true
	}
	assert.Equal(t, recorded, written, "the engine writes this run otherwise now: the journal of the new form needs a name of its own")
}

// Fold is a fold of journals.
type Fold struct {
	// Version is the fold's.
	Version int
	// New returns the state of a journal without events, and the function that folds an event into it.
	New func(journal string) (state any, apply func(*agentv1.Event) error)
	// Skip are fields that are not part of the folded state, such as caches: `Type.field`.
	Skip []string
	// Show returns a replacement for a value, which is dumped instead of its fields; false if there is none.
	Show func(path string, value any) (any, bool)
}

// Check folds each journal of a folder, and compares the state after each event with the recorded one.
func Check(t *testing.T, dir string, f Fold) {
	t.Helper()
	for name, events := range journals(t, dir) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := f.states(t, events)
			path := filepath.Join(dir, name+statesSuffix)
			recorded, err := os.ReadFile(path)
			if *update && (os.IsNotExist(err) || !strings.HasPrefix(string(recorded), got[0]+"\n")) {
				recorded = []byte(strings.Join(got, "\n") + "\n")
				require.NoError(t, os.WriteFile(path, recorded, 0o600))
			} else {
				require.NoError(t, err, "record the states with -update")
			}
			want := strings.Split(strings.TrimSuffix(string(recorded), "\n"), "\n")
			require.Len(t, got, len(want))
			for i := range want {
				require.JSONEq(t, want[i], got[i], "a fold that comes to another state needs another version")
			}
		})
	}
}

// Kinds returns which kinds of events the journals of folders hold.
func Kinds(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	kinds := map[string]bool{}
	for _, dir := range dirs {
		for _, events := range journals(t, dir) {
			for _, e := range events {
				kinds[kindOf(e)] = true
			}
		}
	}
	return kinds
}

// journals returns the journals of a folder by name.
func journals(t *testing.T, dir string) map[string][]*agentv1.Event {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
	require.NoError(t, err)
	all := map[string][]*agentv1.Event{}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), journalSuffix)
		if strings.HasSuffix(path, statesSuffix) {
			continue
		}
		all[name] = read(t, path)
	}
	assert.NotEmpty(t, all, "%s has no journals", dir)
	return all
}

// read reads a recorded journal.
func read(t *testing.T, path string) (events []*agentv1.Event) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err, "record it with -update")
	for line := range strings.Lines(string(text)) {
		e := &agentv1.Event{}
		require.NoError(t, protojson.Unmarshal([]byte(line), e), "%s", path)
		events = append(events, e)
	}
	return events
}

// states are the lines of a file of states: the version, then the changes of each event.
func (f Fold) states(t *testing.T, events []*agentv1.Event) []string {
	t.Helper()
	lines := []string{string(marshal(t, map[string]any{"fold_version": f.Version}))}
	state, apply := f.New(events[0].GetJournal())
	var before any = map[string]any{}
	for _, e := range events {
		require.NoError(t, apply(e), "event %d", e.GetSeq())
		after := f.dump(t, state)
		line := map[string]any{"seq": e.GetSeq(), "kind": kindOf(e)}
		if changed := changes(before, after); changed != nil {
			line["state"] = changed
		}
		lines, before = append(lines, string(marshal(t, line))), after
	}
	return lines
}

// changes returns a JSON merge patch of a change; nil if nothing changed.
func changes(before, after any) any {
	old, isOld := before.(map[string]any)
	fresh, isNew := after.(map[string]any)
	if !isOld || !isNew {
		if assert.ObjectsAreEqual(before, after) {
			return nil
		}
		return after
	}
	patch := map[string]any{}
	for key, value := range fresh {
		was, known := old[key]
		if changed := changes(was, value); changed != nil || !known {
			patch[key] = value
			if known {
				patch[key] = changed
			}
		}
	}
	for key := range old {
		if _, stays := fresh[key]; !stays {
			patch[key] = nil
		}
	}
	if len(patch) == 0 {
		return nil
	}
	return patch
}

func kindOf(e *agentv1.Event) string {
	m := e.ProtoReflect()
	return string(m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")).Name())
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

func jsonOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	text, err := protojson.Marshal(m)
	require.NoError(t, err)
	var compact bytes.Buffer // The text of protojson differs in its spaces from build to build.
	require.NoError(t, json.Compact(&compact, text))
	return compact.Bytes()
}
