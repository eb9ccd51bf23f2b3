package mockllm

import (
	"sync"

	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// maxTakers bounds the consumers whose positions in a list are kept; the least recently active one is evicted first.
const maxTakers = 4096

// places tracks the position of each evaluation, and of each standalone run, in the ordered list of a model. Calls
// without an origin share one position. The zero value is ready to use. It is safe for concurrent use.
type places struct {
	mu    sync.Mutex
	taken *lru.Cache[string, *int] // the number of outputs that each consumer has taken
}

// next counts one more call and returns its place in the list, from 0.
//
// A standalone run that this process has not seen before begins at its turn: a process that has ended answered the
// earlier turns. The calls of an evaluation come from many samples in any order, so its turns do not determine the
// position, and a new process begins the list again.
func (p *places) next(r *provider.Request) int {
	at := r.Origin.Attribution
	name := at.GetEval()
	if name == "" {
		name = at.GetRun()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == nil {
		p.taken = lru.New[string, *int](maxTakers)
	}
	taken, known := p.taken.Get(name)
	if !known {
		taken = new(int)
		if at.GetEval() == "" && at.GetRun() != "" && at.GetRole() == "" {
			*taken = max(0, int(at.GetTurn())-1)
		}
		p.taken.Put(name, taken, 1)
	}
	*taken++
	return *taken - 1
}
