// Package corpustest stores recorded journals, and checks that every later fold gives the recorded states.
//
//	engine in a test ── Record ──▶ NAME.jsonl         the events, one a line
//	fold ───────────── Check ───▶ NAME.states.jsonl  what each event changed in the state, one a line
//	both ───────────── Check ───▶ SHA256SUMS         the files as they were recorded, which no file may leave
//
// The flag -update only adds: journals, states and sums that are missing. A recorded file that changes fails Check,
// with -update too. A fold must come to the recorded states for ever: one that reads events otherwise gets a version of
// its own, which new journals pin. The flag -rewrite replaces states and their sums, which is right for journals that
// no release has written.
package corpustest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

var (
	update  = flag.Bool("update", false, "record journals and states that are new")
	rewrite = flag.Bool("rewrite", false, "replace recorded states, of journals that no release has written")
)

const (
	journalSuffix = ".jsonl"
	statesSuffix  = ".states.jsonl"
	sums          = "SHA256SUMS"
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
	// New returns the state of a journal without events, and the function that folds an event into it.
	New func(journal string) (state any, apply func(*agentv1.Event) error)
	// Skip are fields that are not part of the folded state, such as caches: `Type.field`.
	Skip []string
	// Show returns a replacement for a value, which is dumped instead of its fields; false if there is none.
	Show func(path string, value any) (any, bool)
}

// Check folds each journal of a folder, and compares the state after each event with the recorded one. Then it compares
// the files with their recorded sums.
func Check(t *testing.T, dir string, f Fold) {
	t.Helper()
	t.Run("journals", func(t *testing.T) {
		for name, events := range Journals(t, dir) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := f.states(t, events)
				path := filepath.Join(dir, name+statesSuffix)
				recorded, err := os.ReadFile(path)
				if *rewrite || *update && os.IsNotExist(err) {
					recorded = []byte(strings.Join(got, "\n") + "\n")
					require.NoError(t, os.WriteFile(path, recorded, 0o600))
				} else {
					require.NoError(t, err, "record the states with -update")
				}
				want := strings.Split(strings.TrimSuffix(string(recorded), "\n"), "\n")
				require.Len(t, got, len(want))
				for i := range want {
					require.JSONEq(t, want[i], got[i], "runs of recorded journals keep their states: a fold that reads events otherwise needs a version of its own")
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	require.NoError(t, CheckSums(dir, *update, *rewrite))
}

// CheckSums fails if a file of a folder is not as it was recorded, or is missing or not recorded. If add is set, it
// records files that are new; if replace is set, files of states that have changed too.
func CheckSums(dir string, add, replace bool) error {
	recorded, err := readSums(filepath.Join(dir, sums))
	if err != nil {
		return err
	}
	found := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found[filepath.Base(path)] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	var faults []error
	for name, sum := range found {
		was, known := recorded[name]
		switch {
		case known && was == sum:
		case !known && (add || replace), replace && strings.HasSuffix(name, statesSuffix):
			recorded[name] = sum
		case known:
			faults = append(faults, fmt.Errorf("%s has changed since it was recorded: restore it, and record another journal under another name", name))
		default:
			faults = append(faults, fmt.Errorf("%s has no sum; record it with -update", name))
		}
	}
	for name := range recorded {
		if _, there := found[name]; !there {
			faults = append(faults, fmt.Errorf("%s was recorded and is missing: restore it", name))
		}
	}
	if len(faults) > 0 || !add && !replace {
		return errors.Join(faults...)
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		fmt.Fprintf(&lines, "%s  %s\n", recorded[name], name)
	}
	return os.WriteFile(filepath.Join(dir, sums), []byte(lines.String()), 0o600)
}

// readSums reads a file of sums, as sha256sum writes it: none if it is missing.
func readSums(path string) (map[string]string, error) {
	recorded := map[string]string{}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return nil, fmt.Errorf("%s: %q is no sum and name of a file", path, line)
		}
		recorded[name] = sum
	}
	return recorded, nil
}

// Kinds returns which kinds of events the journals of folders hold.
func Kinds(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	kinds := map[string]bool{}
	for _, dir := range dirs {
		for _, events := range Journals(t, dir) {
			for _, e := range events {
				kinds[kindOf(e)] = true
			}
		}
	}
	return kinds
}

// Journals returns the journals of a folder by name.
func Journals(t *testing.T, dir string) map[string][]*agentv1.Event {
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

// states are the lines of a file of states: the changes of each event.
func (f Fold) states(t *testing.T, events []*agentv1.Event) (lines []string) {
	t.Helper()
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
