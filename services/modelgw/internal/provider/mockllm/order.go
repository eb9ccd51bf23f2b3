package mockllm

import (
	"container/list"
	"sync"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// maxTakers bounds whose places in a list are kept; who has not called for longest is forgotten first.
const maxTakers = 4096

// places knows how far each evaluation, and each run outside of one, is in the ordered list of a model. Calls on nobody's behalf share one place.
// The zero value is ready to use. It may be used concurrently.
type places struct {
	mu     sync.Mutex
	takers map[string]*list.Element
	recent list.List // of *taker, the one that called last first
}

// taker is an evaluation or a run that takes from the list.
type taker struct {
	name  string
	taken int
}

// next counts one more call and returns its place in the list, from 0.
//
// A run of its own that this process has not seen before begins at its turn: those before were answered by a process that has ended. The calls of
// an evaluation come from many samples in any order, so that there no turn tells the place, and a new process begins the list again.
func (p *places) next(r *provider.Request) int {
	at := r.Origin.Attribution
	name := at.GetEval()
	if name == "" {
		name = at.GetRun()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	element, known := p.takers[name]
	if !known {
		t := &taker{name: name}
		if at.GetEval() == "" && at.GetRun() != "" && at.GetRole() == "" {
			t.taken = max(0, int(at.GetTurn())-1)
		}
		element = p.add(t)
	}
	p.recent.MoveToFront(element)
	t, _ := element.Value.(*taker)
	t.taken++
	return t.taken - 1
}

func (p *places) add(t *taker) *list.Element {
	if p.takers == nil {
		p.takers = map[string]*list.Element{}
	}
	if len(p.takers) >= maxTakers {
		oldest, _ := p.recent.Remove(p.recent.Back()).(*taker)
		delete(p.takers, oldest.name)
	}
	element := p.recent.PushFront(t)
	p.takers[t.name] = element
	return element
}
