// Package prefixcache keeps the conversations of projects in memory, so that a call which continues a conversation need
// not contain all of it: a prefix identifies the messages that were sent before.
//
//	Get(prefix) ──▶ Conversation ── Extend(new messages) ──▶ Conversation ── Keep ──▶ its prefix can be named
//
// Conversations that grow from one another share their messages and the facts about them. The cache is bounded in
// bytes: the least recently used conversation is evicted, and its callers send it again.
package prefixcache

import (
	"slices"
	"sync"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/pkg/prefix"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
)

// A cached conversation weighs more than its encoded bytes: by these amounts for each message, for each of its parts
// and calls of tools, and for each prefix.
const (
	messageWeight = 512
	partWeight    = 256
	nameWeight    = 256
)

// Conversation is a list of messages, the hash that identifies them and their summary. It is immutable. The zero
// Conversation has no messages.
type Conversation struct {
	line    *line
	count   int
	hash    prefix.Hash
	bytes   int64
	weight  int64
	summary prepare.Summary
	tokens  tokens.Count
}

// line is the messages of conversations that grow from one another. All of them are beginnings of the longest.
type line struct {
	mu       sync.Mutex
	messages []*modelv1.ChatMessage
	weight   int64 // of the messages
	// content are the hashes up to each message by [Conversation.Content], as far as they were asked for.
	content []prefix.Hash
	// names are the prefixes that are kept of it. The cache's lock guards them.
	names []name
}

// Messages returns the messages. Neither the list nor they may be changed.
func (c Conversation) Messages() []*modelv1.ChatMessage {
	if c.line == nil {
		return nil
	}
	c.line.mu.Lock()
	defer c.line.mu.Unlock()
	return c.line.messages[:c.count:c.count]
}

// Summary returns the facts that preparation needs of the messages.
func (c Conversation) Summary() prepare.Summary { return c.summary }

// TokenCount returns what an estimate of the tokens needs of the messages.
func (c Conversation) TokenCount() tokens.Count { return c.tokens }

// Bytes returns how many bytes the messages have when they are encoded.
func (c Conversation) Bytes() int64 { return c.bytes }

// Prefix returns the prefix that identifies the messages.
func (c Conversation) Prefix() *modelv1.MessagePrefix {
	return &modelv1.MessagePrefix{Hash: c.hash.String(), Count: int32(c.count)}
}

// Content returns the hash of the messages by another digest than that of their prefix. Conversations that grow from
// one another share the hashes, so that each message is digested once; digest must therefore be the same function for
// all conversations.
func (c Conversation) Content(digest prefix.Digester) (prefix.Hash, error) {
	if c.count == 0 {
		return prefix.Hash{}, nil
	}
	l := c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.content); n < c.count; n++ {
		var before prefix.Hash
		if n > 0 {
			before = l.content[n-1]
		}
		d, err := digest(l.messages[n])
		if err != nil {
			return prefix.Hash{}, err
		}
		l.content = append(l.content, before.Next(d))
	}
	return l.content[c.count-1], nil
}

// Extend returns the conversation with more messages, which must not be modified afterwards. It fails with
// INVALID_REQUEST if one of them cannot be encoded.
func (c Conversation) Extend(messages ...*modelv1.ChatMessage) (Conversation, error) {
	next := c
	for i, m := range messages {
		digest, size, err := prefix.DigestOf(m)
		if err != nil {
			return Conversation{}, rpcerr.InvalidField("messages", "message %d cannot be encoded: %v", i, err)
		}
		next.tokens = next.tokens.And(tokens.Of(m))
		next.hash, next.bytes = next.hash.Next(digest), next.bytes+int64(size)
		next.weight += int64(size) + messageWeight + partWeight*int64(len(m.GetContent().GetList().GetParts())+len(m.GetToolCalls()))
	}
	next.count += len(messages)
	next.summary = next.summary.And(prepare.SummaryOf(messages...))
	next.line = c.grow(messages, next.weight)
	return next, nil
}

// grow appends messages to the conversation's line if the conversation is the longest of the line; otherwise they begin
// another line. The weight is then that of all messages.
func (c Conversation) grow(messages []*modelv1.ChatMessage, weight int64) *line {
	if c.line == nil {
		return &line{messages: slices.Clone(messages), weight: weight}
	}
	c.line.mu.Lock()
	defer c.line.mu.Unlock()
	if len(c.line.messages) > c.count {
		known := c.line.content[:min(len(c.line.content), c.count)]
		return &line{messages: slices.Concat(c.line.messages[:c.count], messages), weight: weight, content: slices.Clone(known)}
	}
	c.line.messages, c.line.weight = append(c.line.messages, messages...), weight
	return c.line
}

// weighs returns the weight of the line in the cache.
func (l *line) weighs() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.weight + int64(len(l.names))*nameWeight
}

// Cache keeps conversations. It is safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	known map[name]Conversation
	lines *lru.Cache[*line, *line]
}

// name is a project's name of a conversation. A project cannot name another project's conversations.
type name struct {
	project string
	hash    prefix.Hash
}

// New returns an empty cache for conversations of at most maxBytes.
func New(maxBytes int64) *Cache {
	return &Cache{known: map[name]Conversation{}, lines: lru.New[*line, *line](maxBytes)}
}

// Get returns the conversation that a prefix of a project identifies, if it is cached.
func (s *Cache) Get(project string, p *modelv1.MessagePrefix) (Conversation, bool) {
	hash, ok := prefix.Parse(p.GetHash())
	if !ok {
		return Conversation{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.known[name{project, hash}]
	if !ok || c.count != int(p.GetCount()) {
		return Conversation{}, false
	}
	s.lines.Get(c.line) // It is now the one used last.
	return c, true
}

// Keep stores conversations of a project. A conversation that exceeds the bound of the cache is not stored.
func (s *Cache) Keep(project string, all ...Conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		if c.line == nil {
			continue
		}
		n := name{project, c.hash}
		if known, ok := s.known[n]; !ok || known.line != c.line {
			c.line.names = append(c.line.names, n)
		}
		s.known[n] = c
		s.weigh(c.line)
	}
}

// Weigh adds to the weight of a cached conversation what a call added without caching the result, since cached
// conversations share its messages.
func (s *Cache) Weigh(c Conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, kept := s.lines.Get(c.line); kept {
		s.weigh(c.line)
	}
}

// weigh makes a line the most recently used, with its weight, and evicts others for it, or the line itself if it is too
// large.
func (s *Cache) weigh(l *line) {
	for _, gone := range s.lines.Put(l, l, l.weighs()) {
		if gone != l {
			s.forget(gone)
		}
	}
	if _, kept := s.lines.Get(l); !kept {
		s.forget(l)
	}
}

func (s *Cache) forget(gone *line) {
	for _, n := range gone.names {
		if s.known[n].line == gone {
			delete(s.known, n)
		}
	}
	gone.names = nil
}
