package execute

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
)

// place identifies a call whose progress is reported: by its key, so that callers that attach receive the progress too,
// or within its batch if it has no key.
type place struct {
	key   effect.Key
	batch *Batch
	index int
}

func (b *Batch) place(i int) place {
	if key := b.key(i); !key.IsZero() {
		return place{key: key}
	}
	return place{batch: b, index: i}
}

// progressReporter returns the function with which a tool reports the progress of call i.
func (e *Executor) progressReporter(b *Batch, i int) func(line string) {
	return func(line string) { e.progress.Post(b.place(i), &effectv1.Note{Message: line, Time: timestamppb.Now()}) }
}

// progressFollower collects the progress of a batch's calls. Only workers report progress; without a worker's call
// there is none.
type progressFollower struct {
	news    <-chan struct{}
	batch   *Batch
	indexes map[place]int
	watch   *lastvalue.Watcher[place, *effectv1.Note]
}

func (e *Executor) follow(b *Batch) *progressFollower {
	f := &progressFollower{batch: b, indexes: map[place]int{}}
	for i, call := range b.Calls {
		if offer := b.Offers.Find(call.GetFunction()); offer != nil && offer.Public.GetWorker() != "" {
			f.indexes[b.place(i)] = i
		}
	}
	if len(f.indexes) > 0 {
		f.watch = e.progress.Watch(func(at place) bool { _, ours := f.indexes[at]; return ours })
		f.news = f.watch.C
	}
	return f
}

// emitNew emits the new progress.
func (f *progressFollower) emitNew(emit func(*toolv1.ExecuteToolsResponse) error) error {
	for _, news := range f.watch.Next() {
		if news.Gone {
			continue // its result includes it
		}
		i := f.indexes[news.Key]
		progress := &toolv1.ToolProgress{CallId: f.batch.Calls[i].GetId(), Index: int32(i), Note: news.Value}
		if err := emit(&toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Progress{Progress: progress}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *progressFollower) close() {
	if f.watch != nil {
		f.watch.Close()
	}
}
