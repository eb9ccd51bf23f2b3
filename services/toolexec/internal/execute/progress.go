package execute

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
)

// place is where the progress of a call is told: under its key, so that whoever attaches hears of it too, or within its
// batch where it has none.
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

// progressReporter returns what a tool tells the progress of call i with.
func (e *Executor) progressReporter(b *Batch, i int) func(line string) {
	return func(line string) { e.progress.Post(b.place(i), &effectv1.Note{Message: line, Time: timestamppb.Now()}) }
}

// progressFollower is the progress of a batch's calls. Only workers tell of theirs; without a call of one there are no
// news.
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

// showError tells what is new.
func (f *progressFollower) emitNew(emit func(*toolv1.ExecuteToolsResponse) error) error {
	for _, news := range f.watch.Next() {
		if news.Gone {
			continue // its result says so
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
