package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/rawhttp"
	"github.com/evalfleet/evalfleet/bench/internal/vendor"
)

// rawConn is a connection of one caller.
type rawConn struct {
	net.Conn
	in *rawhttp.Reader
}

func dialRaw(ctx context.Context, address string) (*rawConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: conn, in: rawhttp.NewReader(conn)}, nil
}

// longestAnswer bounds the wait for an answer.
const longestAnswer = time.Minute

// ask sends a request and reads the answer.
func (c *rawConn) ask(request []byte, piece func([]byte)) error {
	if err := c.SetDeadline(time.Now().Add(longestAnswer)); err != nil {
		return err
	}
	if _, err := c.Write(request); err != nil {
		return err
	}
	_, err := c.in.Answer(piece)
	return err
}

// posts samples the processor time of a request of all callers at once, or of a chunk if the answers have several. Each
// caller keeps its connection.
func (m *middle) posts(stop *cleanup, path, body string, chunks int) paired.Sampler {
	request := rawhttp.Post(m.Address, path, m.token.Reveal(), body)
	conns := make([]*rawConn, callers)
	stop.add(func() (err error) {
		for _, c := range conns {
			if c != nil {
				err = errors.Join(err, c.Close())
			}
		}
		return err
	})
	perRequest := load.CPU(callers, func(ctx context.Context, caller, _ int) (err error) {
		if conns[caller] == nil {
			if conns[caller], err = dialRaw(ctx, m.Address); err != nil {
				return err
			}
		}
		if chunks == 1 {
			return conns[caller].ask(request, nil)
		}
		got := 0
		err = conns[caller].ask(request, func(piece []byte) { got += bytes.Count(piece, []byte(vendor.Token)) })
		if err == nil && got != chunks {
			err = fmt.Errorf("%d chunks in place of %d", got, chunks)
		}
		return err
	}, m.CPU)
	return func(ctx context.Context, d time.Duration) (float64, error) {
		each, err := perRequest(ctx, d)
		return each / float64(chunks), err
	}
}

// gone samples how long it takes until the vendor sees that a client has gone, in milliseconds: the time that 99 of 100
// do not exceed.
func (m *middle) gone(body string) paired.Sampler {
	request := rawhttp.Post(m.Address, "/v1/chat/completions", m.token.Reveal(), body)
	return func(ctx context.Context, d time.Duration) (float64, error) {
		var took []float64
		for begin := time.Now(); len(took) == 0 || time.Since(begin) < d; {
			conn, err := dialRaw(ctx, m.Address)
			if err != nil {
				return 0, err
			}
			if _, err := conn.Write(request); err != nil {
				return 0, errors.Join(err, conn.Close())
			}
			if _, err := conn.in.Head(); err != nil {
				return 0, errors.Join(err, conn.Close())
			}
			left := time.Now()
			if err := conn.Close(); err != nil {
				return 0, err
			}
			select {
			case seen := <-m.vendor.Gone:
				took = append(took, float64(seen.Sub(left).Nanoseconds())/1e6)
			case <-time.After(longestAnswer):
				return 0, errors.New("the vendor does not see that the client has gone")
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		return paired.Quantile(took, 0.99), nil
	}
}

// hold opens so many requests that the vendor holds, calls held once it holds all, lets it answer, and reads the
// answers.
func (m *middle) hold(ctx context.Context, requests int, held func() error) (err error) {
	var conns []*rawConn
	defer func() {
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
	}()
	defer m.vendor.Release()
	for i := range requests {
		conn, err := dialRaw(ctx, m.Address)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		if _, err := conn.Write(m.heldRequest(i)); err != nil {
			return err
		}
	}
	if err := m.awaitHeld(ctx, requests); err != nil {
		return err
	}
	if err := held(); err != nil {
		return err
	}
	m.vendor.Release()
	var reading sync.WaitGroup
	failures := make([]error, len(conns))
	for i, c := range conns {
		reading.Go(func() { _, failures[i] = c.in.Answer(nil) })
	}
	reading.Wait()
	return errors.Join(failures...)
}

// awaitHeld waits until the vendor holds so many requests.
func (m *middle) awaitHeld(ctx context.Context, requests int) error {
	ctx, cancel := context.WithTimeout(ctx, longestAnswer)
	defer cancel()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for m.vendor.Held() < requests {
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("the vendor has %d of %d requests: %w", m.vendor.Held(), requests, ctx.Err())
		}
	}
	return nil
}
