// Package offload keeps messages small: it moves large values of a message into the blob store, and brings them back.
//
//	{content: {text: "5 MB …"}}  ──Put──▶  {content: {text: ""}, offloaded: [{field: "content.text", blob: {hash, size}}]}
//	                             ◀─Take──
//
// A message that can have such values has a field `offloaded`; messages within it have no such field, or leave it
// empty: the outermost one lists all. This package knows no message by name. Code that works with a message has all of
// its values in place: the ends of a connection and the journal call Put and Take.
package offload

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// LargeBytes is the size above which a value of a request or of a journal's event is offloaded.
const LargeBytes = 256 << 10

const (
	// smallest is the size below which values are never offloaded: a reference to one would save little.
	smallest = 4 << 10
	// reference is the most that a reference takes beside the path of its field.
	reference = 160
)

// Store is the part of a [blob.Store] that this package uses.
type Store interface {
	Put(ctx context.Context, project string, body io.Reader, mediaType string) (blob.Ref, error)
	Get(ctx context.Context, project, hash string, offset, limit int64) (io.ReadCloser, blob.Ref, error)
}

// Limits define which values are offloaded.
type Limits struct {
	// Value is the size above which every value is offloaded; zero is none.
	Value int
	// Message is the wanted size of the message. If the message is larger, its largest values are offloaded until it
	// fits. A message of small values alone may still be larger.
	Message int
	// ContentOnly excludes texts that are no content, as [TakeRequest] refuses them.
	ContentOnly bool
}

// Put returns m with its large values in the blob store: m itself if there are none, which costs no more than computing
// its size, else a copy. Put does not modify m. It calls project only if it needs the project.
func Put[M proto.Message](ctx context.Context, store Store, project func() (string, error), m M, limits Limits) (M, error) {
	size := proto.Size(m)
	if size <= limits.Message && (limits.Value == 0 || size <= limits.Value) {
		return m, nil
	}
	var all []value
	collect(m.ProtoReflect(), nil, -1, &all)
	if limits.ContentOnly {
		all = slices.DeleteFunc(all, func(v value) bool { return v.path.isPlain() })
	}
	slices.SortStableFunc(all, func(a, b value) int { return cmp.Compare(b.size, a.size) })
	n := 0
	for n < len(all) && (size > limits.Message || limits.Value > 0 && all[n].size > limits.Value) {
		size += reference + len(all[n].path.String()) - all[n].size
		n++
	}
	if n == 0 {
		return m, nil
	}
	of, err := project()
	if err != nil {
		return m, err
	}
	small, _ := proto.Clone(m).(M) // it is made of the same type
	for _, v := range all[:n] {
		if err := v.put(ctx, store, of, small.ProtoReflect()); err != nil {
			return m, err
		}
	}
	return small, nil
}

// collect finds the values that may be offloaded. Holder is the number of path steps to the message that lists them, or
// -1 before such a message was found.
func collect(m protoreflect.Message, at path, holder int, all *[]value) {
	within := m.Range
	if holder < 0 {
		known := typeOf(m.Descriptor())
		if known.list != nil {
			holder = len(at)
		} else {
			within = known.rangeOf(m)
		}
	}
	add := func(field protoreflect.FieldDescriptor, s step, v protoreflect.Value) {
		switch {
		case field.Message() != nil:
			collect(v.Message(), append(at, s), holder, all)
		case holder >= 0 && sizeOf(field, v) >= smallest:
			*all = append(*all, value{path: append(slices.Clone(at), s), holder: holder, size: sizeOf(field, v)})
		}
	}
	within(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if of := field.MapValue(); field.MapKey().Kind() == protoreflect.StringKind && (of.Message() != nil || holds(of)) {
				v.Map().Range(func(key protoreflect.MapKey, item protoreflect.Value) bool {
					add(of, step{field: field, key: key}, item)
					return true
				})
			}
		case field.Message() == nil && !holds(field):
		case field.IsList():
			for i := range v.List().Len() {
				add(field, step{field: field, index: i}, v.List().Get(i))
			}
		default:
			add(field, step{field: field}, v)
		}
		return true
	})
}

// holds reports whether values of a field's kind may be offloaded.
func holds(field protoreflect.FieldDescriptor) bool {
	return field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.BytesKind
}

func sizeOf(field protoreflect.FieldDescriptor, v protoreflect.Value) int {
	if field.Kind() == protoreflect.StringKind {
		return len(v.String())
	}
	return len(v.Bytes())
}

// value is a value that may be offloaded.
type value struct {
	path   path
	holder int
	size   int
}

// put moves the value out of a message.
func (v value) put(ctx context.Context, store Store, project string, m protoreflect.Message) error {
	holder, last := m, len(v.path)-1
	for i, s := range v.path[:last] {
		if i == v.holder {
			holder = m
		}
		m = s.mutable(m)
	}
	if v.holder == last {
		holder = m
	}
	s := v.path[last]
	content, mediaType, empty := []byte(nil), blob.DefaultMediaType, protoreflect.ValueOfBytes(nil)
	if s.kind() == protoreflect.StringKind {
		content, mediaType, empty = []byte(s.get(m).String()), "text/plain; charset=utf-8", protoreflect.ValueOfString("")
	} else {
		content = s.get(m).Bytes()
	}
	ref, err := keep(ctx, store, project, content, mediaType)
	if err != nil {
		return fmt.Errorf("offload: %w", err)
	}
	s.set(m, empty)
	refer(holder.Mutable(typeOf(holder.Descriptor()).list).List(), v.path[v.holder:].String(), ref)
	return nil
}

// keep writes content to the store, unless the store has it: a text passes through several processes, and one write is
// enough. The lookup counts as a use, so that no sweep deletes the body before an event refers to it.
func keep(ctx context.Context, store Store, project string, content []byte, mediaType string) (blob.Ref, error) {
	sum := sha256.Sum256(content)
	body, ref, err := store.Get(ctx, project, hex.EncodeToString(sum[:]), 0, 1)
	if err == nil {
		return ref, body.Close()
	}
	return store.Put(ctx, project, bytes.NewReader(content), mediaType)
}

// Take restores the offloaded values of m and clears the references. It fails with INVALID_REQUEST if a reference names
// no field, no body or no text, with REQUEST_TOO_LARGE if all values together exceed maxBytes, and with the store's own
// errors. It costs nothing if m has no offloaded values.
func Take(ctx context.Context, store Store, project func() (string, error), m proto.Message, maxBytes int64) error {
	t := taking{store: store, project: project, left: maxBytes, max: maxBytes, texts: map[string]string{}}
	return t.within(ctx, m.ProtoReflect(), "")
}

// TakeRequest is Take for a request of a client. It also refuses references for names and settings, as the option
// `plain` marks them: they are stored in rows, and have the bound of a message. The bytes count for the share of the
// call, if ctx has one, and are refused where it has no room ([Room]).
func TakeRequest(ctx context.Context, store Store, project func() (string, error), m proto.Message, maxBytes int64) error {
	t := taking{store: store, project: project, left: maxBytes, max: maxBytes, texts: map[string]string{}, contentOnly: true, share: shareOf(ctx)}
	return t.within(ctx, m.ProtoReflect(), "")
}

type taking struct {
	store     Store
	project   func() (string, error)
	left, max int64
	texts     map[string]string // by hash: a text that occurs twice is read once
	// contentOnly refuses texts that are no content.
	contentOnly bool
	share       *Share // nil if nothing counts the bytes of several calls
}

// within restores the offloaded values of a message and of those below it.
func (t *taking) within(ctx context.Context, m protoreflect.Message, at string) error {
	known := typeOf(m.Descriptor())
	if known.list != nil {
		if !m.Has(known.list) {
			return nil
		}
		refs := m.Get(known.list).List()
		for i := range refs.Len() {
			field, hash := referred(refs.Get(i).Message())
			if err := t.one(ctx, m, field, hash, fmt.Sprintf("%s%s[%d]", at, known.list.Name(), i)); err != nil {
				return err
			}
		}
		m.Clear(known.list)
		return nil
	}
	for _, field := range known.lead {
		if !m.Has(field) {
			continue
		}
		if !field.IsList() {
			if err := t.within(ctx, m.Get(field).Message(), at+string(field.Name())+"."); err != nil {
				return err
			}
			continue
		}
		items := m.Get(field).List()
		for i := range items.Len() {
			if err := t.within(ctx, items.Get(i).Message(), fmt.Sprintf("%s%s[%d].", at, field.Name(), i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// one takes one value. At is where its reference is.
func (t *taking) one(ctx context.Context, m protoreflect.Message, field, hash, at string) error {
	p, err := parse(m.Descriptor(), field)
	if err != nil {
		return rpcerr.InvalidField(at+".field", "%q %v", field, err)
	}
	if t.contentOnly && p.isPlain() {
		return rpcerr.InvalidField(at+".field", "%q is no content, so it has to be in its place", field)
	}
	for _, s := range p[:len(p)-1] {
		if !s.has(m) {
			return rpcerr.InvalidField(at+".field", "%q leads to nothing in this message", field)
		}
		m = s.mutable(m)
	}
	s := p[len(p)-1]
	if s.isItem() && !s.has(m) {
		return rpcerr.InvalidField(at+".field", "%q leads to nothing in this message", field)
	}
	if s.has(m) && sizeOf(s.of(), s.get(m)) > 0 {
		return rpcerr.InvalidField(at+".field", "%q has a value of its own", field)
	}
	text, err := t.read(ctx, hash)
	switch {
	case errors.Is(err, blob.ErrNotFound), errors.Is(err, blob.ErrInvalid):
		return rpcerr.InvalidField(at+".blob", "the project has no body %s; put it there first", hash)
	case err != nil:
		return err
	case s.kind() == protoreflect.BytesKind:
		s.set(m, protoreflect.ValueOfBytes([]byte(text)))
	case !utf8.ValidString(text):
		return rpcerr.InvalidField(at+".blob", "the body %s is no text in UTF-8", hash)
	default:
		s.set(m, protoreflect.ValueOfString(text))
	}
	return nil
}

// read returns a body whole.
func (t *taking) read(ctx context.Context, hash string) (text string, err error) {
	text, known := t.texts[hash]
	if !known {
		project, err := t.project()
		if err != nil {
			return "", err
		}
		body, ref, err := t.store.Get(ctx, project, hash, 0, 0)
		if err != nil {
			return "", err
		}
		if err := t.count(ref.Size); err != nil {
			return "", errors.Join(err, body.Close())
		}
		var whole strings.Builder
		whole.Grow(int(ref.Size))
		_, err = io.Copy(&whole, body)
		if err := errors.Join(err, body.Close()); err != nil {
			return "", err
		}
		t.texts[hash] = whole.String()
		return t.texts[hash], nil
	}
	return text, t.count(int64(len(text)))
}

func (t *taking) count(size int64) error {
	if t.left -= size; t.left < 0 {
		return rpcerr.RequestTooLarge("", int(t.max), "what stands apart of the message has more than %d bytes", t.max)
	}
	return t.share.take(size)
}
