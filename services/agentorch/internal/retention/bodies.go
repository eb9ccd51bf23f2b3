package retention

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// times are the times of a run or an evaluation.
type times interface {
	GetCreateTime() *timestamppb.Timestamp
	GetEndTime() *timestamppb.Timestamp
}

// Bodies is the part of the store of bodies that the keeper needs.
type Bodies interface {
	// List names all bodies.
	List(ctx context.Context) ([]blob.Kept, error)
	// DeleteUnused deletes a body unless it was put or read since a time.
	DeleteUnused(ctx context.Context, project, hash string, since time.Time) (deleted bool, err error)
	// Peek reads a body, which does not count as a use.
	Peek(ctx context.Context, project, hash string) (io.ReadCloser, error)
	// Enrol marks the store with the id of a database whose rows name bodies in it, and returns the marks of other
	// databases. If own is set, bodies that precede any mark belong to that database.
	Enrol(ctx context.Context, id string, own bool) (others []string, err error)
	// Untouched reports whether the store has neither a body nor a mark.
	Untouched(ctx context.Context) (bool, error)
}

// Find marks the store of bodies as that of the journals. Call it before a journal of this process names a body. It
// fails if the bodies that journals may name are gone: journals exist, and the store is not theirs, since it has no
// mark. Runs that continued without their bodies would fail.
func (k *Keeper) Find(ctx context.Context) error {
	if k.deps.Bodies == nil {
		return nil
	}
	id, used, err := k.deps.Journals.Identity(ctx)
	if err != nil {
		return err
	}
	untouched, err := k.deps.Bodies.Untouched(ctx)
	if err != nil {
		return err
	}
	if used && untouched {
		return &LostBodiesError{Database: id}
	}
	_, err = k.ownsAllBodies(ctx)
	k.tell(ctx, "cannot mark the folder of bodies", err) // A full disk must not prevent a start.
	return nil
}

// LostBodiesError is the error if journals exist but the folder of their bodies does not.
type LostBodiesError struct {
	// Database is the id that the folder's mark should have.
	Database string
}

// Error describes how to recover.
func (e *LostBodiesError) Error() string {
	return "the folder of bodies is new, and the database has runs that may name bodies of an earlier one: " +
		"put that back in its place, or, to go on without those bodies, make the empty file .databases/" + e.Database + " in the new folder"
}

// ownsAllBodies reports whether the keeper may sweep all bodies. Each database leaves its mark in the folder. If other
// databases have marks, or if this one has never had a journal, the keeper cannot know which bodies are named.
func (k *Keeper) ownsAllBodies(ctx context.Context) (bool, error) {
	if k.deps.Bodies == nil {
		return false, nil
	}
	id, used, err := k.deps.Journals.Identity(ctx)
	if err != nil {
		return false, err
	}
	others, err := k.deps.Bodies.Enrol(ctx, id, used && k.deps.OwnBodies)
	if err != nil {
		return false, err
	}
	if len(others) > 0 && !k.kept && k.cfg.Bodies > 0 {
		k.kept = true
		k.deps.Logger.Warn("bodies are not swept, since other databases may name them; where one of them is gone for good, remove its file from .databases in the folder of bodies", "others", others)
	}
	return used && len(others) == 0, nil
}

// Sweep deletes bodies that are not named anywhere and were not used for a while. A body is named if its hash occurs in
// a journal, or in a body that is kept, such as the samples of an evaluation. A text that only looks like the hash
// keeps the body too.
func (k *Keeper) Sweep(ctx context.Context, now time.Time) error {
	if k.deps.Bodies == nil || k.cfg.Bodies <= 0 {
		return nil
	}
	if sole, err := k.ownsAllBodies(ctx); !sole || err != nil {
		return err
	}
	since := now.Add(-k.cfg.Bodies)
	all, err := k.deps.Bodies.List(ctx)
	if err != nil {
		return err
	}
	m := marks{unnamed: map[string][]blob.Kept{}}
	for _, body := range all {
		if body.Used.Before(since) {
			m.unnamed[body.Hash] = append(m.unnamed[body.Hash], body)
		} else {
			m.named = append(m.named, body)
		}
	}
	if len(m.unnamed) == 0 {
		return nil
	}
	place, err := k.scanAll(ctx, &m, journal.Place{})
	if err != nil {
		return err
	}
	// A second, fast pass over recent changes: journals, and bodies that were stored or read.
	if all, err = k.deps.Bodies.List(ctx); err != nil {
		return err
	}
	for _, body := range all {
		if !body.Used.Before(now.Add(-time.Minute)) {
			delete(m.unnamed, body.Hash)
			m.named = append(m.named, body)
		}
	}
	if _, err := k.scanAll(ctx, &m, place); err != nil {
		return err
	}
	if sole, err := k.ownsAllBodies(ctx); !sole || err != nil {
		return err // Another database appeared in the meantime.
	}
	deleted := 0
	for _, bodies := range m.unnamed {
		for _, body := range bodies {
			gone, err := k.deps.Bodies.DeleteUnused(ctx, body.Project, body.Hash, since)
			if err != nil {
				return err
			}
			if gone {
				deleted++
			}
		}
	}
	if deleted > 0 {
		k.deps.Logger.Info("deleted bodies that nothing names", "bodies", deleted)
	}
	return nil
}

// scanAll unmarks the bodies that are named in journals after a position, in pending commands, and in bodies that are
// kept.
func (k *Keeper) scanAll(ctx context.Context, m *marks, after journal.Place) (journal.Place, error) {
	// Commands first: a command that is applied in the meantime is in a journal by then.
	err := k.deps.Journals.Commands(ctx, func(c journal.Command) error {
		if text := k.deps.CommandText; text != nil {
			m.scan(text(c))
		} else {
			m.scan(c.Body)
		}
		return ctx.Err()
	})
	if err != nil {
		return after, err
	}
	if after, err = k.deps.Journals.Texts(ctx, after, func(text []byte) error { m.scan(text); return ctx.Err() }); err != nil {
		return after, err
	}
	for len(m.named) > 0 && len(m.unnamed) > 0 {
		body := m.named[0]
		m.named = m.named[1:]
		if err := k.scanBody(ctx, m, body); err != nil {
			return after, err
		}
	}
	return after, nil
}

// chunk is how much of a body is looked at together.
const chunk = 1 << 20

func (k *Keeper) scanBody(ctx context.Context, m *marks, kept blob.Kept) error {
	body, err := k.deps.Bodies.Peek(ctx, kept.Project, kept.Hash)
	if errors.Is(err, blob.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer body.Close()
	buffer, held := make([]byte, chunk), 0
	for {
		n, err := io.ReadFull(body, buffer[held:])
		text := buffer[:held+n]
		m.scan(text)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		held = copy(buffer, text[len(text)-(hashDigits-1):]) // a hash may begin in one chunk and end in the next
	}
}

// marks are the bodies without a known reference, by hash, and the kept bodies that were not scanned yet.
type marks struct {
	unnamed map[string][]blob.Kept
	named   []blob.Kept
}

// hashDigits is the length of a body's hash in text.
const hashDigits = 64

// scan unmarks the bodies that a text names.
func (m *marks) scan(text []byte) {
	digits := 0
	for i, c := range text {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'f' {
			digits++
		} else {
			digits = 0
		}
		if digits < hashDigits {
			continue
		}
		if bodies, ok := m.unnamed[string(text[i+1-hashDigits:i+1])]; ok {
			m.named = append(m.named, bodies...)
			delete(m.unnamed, bodies[0].Hash)
		}
	}
}
