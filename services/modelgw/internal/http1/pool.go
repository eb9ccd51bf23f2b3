package http1

import (
	"slices"
	"sync"
	"time"
)

// pool has the idle connections.
type pool struct {
	mu sync.Mutex
	// byAddress has the connections to an address, the one that was used last at the end.
	byAddress map[string][]*conn
	sweeps    bool
}

// take returns the connection that was used last; nil for none. The caller must not trust it to be open.
func (p *pool) take(address string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.byAddress[address]
	if len(kept) == 0 {
		return nil
	}
	c := kept[len(kept)-1]
	kept[len(kept)-1] = nil
	p.byAddress[address] = kept[:len(kept)-1]
	return c
}

// put keeps a connection, or closes it if as many as most are kept already.
func (p *pool) put(c *conn, most int, timeout time.Duration) {
	c.since = time.Now()
	p.mu.Lock()
	full := len(p.byAddress[c.address]) >= most
	if !full {
		if p.byAddress == nil {
			p.byAddress = map[string][]*conn{}
		}
		p.byAddress[c.address] = append(p.byAddress[c.address], c)
		if !p.sweeps {
			p.sweeps = true
			time.AfterFunc(timeout, func() { p.sweep(timeout) })
		}
	}
	p.mu.Unlock()
	if full {
		c.close()
	}
}

// sweep closes the connections that have been idle for longer than timeout, and comes again while there are others.
func (p *pool) sweep(timeout time.Duration) {
	until := time.Now().Add(-timeout)
	p.mu.Lock()
	var old []*conn
	for address, kept := range p.byAddress {
		n := 0
		for n < len(kept) && !kept[n].since.After(until) {
			n++
		}
		old = append(old, kept[:n]...)
		if n == len(kept) {
			delete(p.byAddress, address)
			continue
		}
		p.byAddress[address] = slices.Clone(kept[n:])
	}
	if p.sweeps = len(p.byAddress) > 0; p.sweeps {
		time.AfterFunc(timeout, func() { p.sweep(timeout) })
	}
	p.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// closeAll closes all connections.
func (p *pool) closeAll() {
	p.mu.Lock()
	all := p.byAddress
	p.byAddress = nil
	p.mu.Unlock()
	for _, kept := range all {
		for _, c := range kept {
			c.close()
		}
	}
}
