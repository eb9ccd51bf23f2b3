// Package progress shows the progress of open effects to watchers: failed attempts that are retried, progress lines of
// workers. It is not journaled, and nothing depends on it; the journal holds the intent and, in the end, the outcome.
package progress

import (
	"cmp"
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
)

// Key names an open effect: by its run, with the evaluation that the run belongs to or nothing, and by the number of
// its intent.
type Key struct {
	Run, Eval string
	Intent    int64
}

// Board holds the notes of the runs that a replica owns.
type Board = lastvalue.Map[Key, *agentv1.RunNote]

// News is a note that has changed.
type News = lastvalue.Update[Key, *agentv1.RunNote]

// OfRun wants the notes of one run.
func OfRun(name string) func(Key) bool { return func(k Key) bool { return k.Run == name } }

// OfEval wants the notes of an evaluation's runs.
func OfEval(name string) func(Key) bool { return func(k Key) bool { return k.Eval == name } }

// Latest returns the newest notes that are wanted, at most n, the newest first.
func Latest(b *Board, wants func(Key) bool, n int) []*agentv1.RunNote {
	var notes []*agentv1.RunNote
	for _, note := range b.All(wants) {
		notes = append(notes, note)
	}
	slices.SortFunc(notes, func(x, y *agentv1.RunNote) int {
		return cmp.Or(y.GetNote().GetTime().AsTime().Compare(x.GetNote().GetTime().AsTime()), cmp.Compare(x.GetRun(), y.GetRun()), cmp.Compare(x.GetIntent(), y.GetIntent()))
	})
	return notes[:min(n, len(notes))]
}
