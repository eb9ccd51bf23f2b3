package grpcserver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/connlimit"
)

// The memory of a call in the transport, measured with grpc-go 1.85: its fixed part, and its part for each byte of its
// header list as HTTP/2 counts it (the metadata of 16 KiB of the smallest fields takes 58 KiB).
const (
	callBytes       = 4 << 10
	headerListBytes = 4
)

// headerTable is the size of the transport's table of header fields (RFC 9113, section 6.5.2), and largestFrame the
// largest frame that it accepts.
const (
	headerTable  = 4 << 10
	largestFrame = 16 << 10
)

// frameHeader is the length of a frame's header (RFC 9113, section 4.1).
const frameHeader = 9

// meter is a connection that is not read while its unauthenticated caller makes the server hold too much. gRPC's
// transport holds a call until its last frame is sent, and a client whose flow-control window is 0 never lets it be
// sent. So the meter reads the headers of all frames, in both directions, and records how much each call holds until
// the frame that ends it. Each frame also costs work, which is rate-limited for strangers: see toll. Once a credential
// is accepted the meter lets everything through.
//
// Read ends at least with every frame. When the transport reads again it has handled all frames before, so that the
// meter knows of a credential in the first HEADERS frame before the next frame is read.
type meter struct {
	net.Conn
	known atomic.Bool
	toll  toll

	// Read's: the rest of the current frame, below, and the bytes read ahead.
	left    int
	ahead   []byte
	headers *hpack.Decoder
	list    int // size of the header list that headers decodes
	frames  int // read so far
	asked   bool

	// Write's: the rest of the current frame, and the known part of the next frame's header.
	rest  int
	begun []byte

	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	calls   map[uint32]*weight
	current uint32 // the call whose HEADERS frame was read last
	// in is the size held by calls: their headers, and data that was not received. out is the size of their unsent
	// answers.
	in, out int
	writing bool
	changed chan struct{} // closed when one of these has changed
}

// weight is the size held by one call, in bytes. A call that the client resets, or the server because its deadline has
// passed, keeps its weight: its handler may still run, and the transport does not report when it has released the call.
type weight struct {
	in, out int
	aborted bool
}

func newMeter(conn net.Conn, shared *sharedWork) *meter {
	m := &meter{
		Conn: conn, toll: newToll(shared), left: len(http2.ClientPreface), closed: make(chan struct{}),
		calls: map[uint32]*weight{}, changed: make(chan struct{}),
	}
	m.headers = hpack.NewDecoder(headerTable, func(f hpack.HeaderField) { m.list += int(f.Size()) })
	m.headers.SetMaxStringLength(bound.RequestHeaderBytes)
	return m
}

// know records that the caller is authenticated.
func (m *meter) know() {
	connlimit.MarkAuthenticated(m.Conn)
	m.known.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls, m.in, m.out = nil, 0, 0
	m.change()
}

// Close implements [net.Conn].
func (m *meter) Close() error {
	m.once.Do(func() { close(m.closed) })
	return m.Conn.Close()
}

// Read implements [net.Conn].
func (m *meter) Read(p []byte) (int, error) {
	if len(m.ahead) == 0 && m.left == 0 && !m.known.Load() {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	if len(m.ahead) > 0 {
		n := copy(p, m.ahead)
		m.ahead = m.ahead[n:]
		return n, nil
	}
	if m.known.Load() {
		return m.Conn.Read(p)
	}
	n, err := m.Conn.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}

// next reads the header of a frame, and all of a frame that has headers, once there is room.
func (m *meter) next() error {
	if m.frames++; m.asked || m.frames > bound.StrangerFrames {
		connlimit.MarkUnauthenticated(m.Conn) // The transport has seen the call, and it had no credential.
	}
	if err := m.room(); err != nil {
		return err
	}
	m.ahead = make([]byte, frameHeader)
	if _, err := io.ReadFull(m.Conn, m.ahead); err != nil {
		m.ahead = nil
		return err
	}
	size, kind, flags, id := parse(m.ahead)
	m.left = size
	work := frameWork
	if kind == http2.FrameHeaders {
		work = callWork
	}
	if err := m.pay(context.Background(), work); err != nil {
		return err
	}
	switch kind {
	case http2.FrameHeaders, http2.FrameContinuation:
		m.asked = flags.Has(http2.FlagHeadersEndHeaders)
		if size > largestFrame {
			return nil // The transport refuses it.
		}
		m.ahead = append(m.ahead, make([]byte, size)...)
		if _, err := io.ReadFull(m.Conn, m.ahead[frameHeader:]); err != nil {
			return err
		}
		m.left = 0
		m.list = 0
		_, err := m.headers.Write(fragment(m.ahead[frameHeader:], kind, flags))
		if flags.Has(http2.FlagHeadersEndHeaders) {
			err = errors.Join(err, m.headers.Close())
		}
		if err != nil {
			m.list = bound.RequestHeaderBytes // Headers that cannot be decoded may be of any size.
		}
		m.call(id, callBytes+headerListBytes*min(m.list, bound.RequestHeaderBytes))
	case http2.FrameData:
		m.data(id, size)
	case http2.FrameRSTStream:
		m.abort(id)
	default: // The transport bounds the cost of other frames, as long as it can write.
	}
	return nil
}

// room waits while calls hold too much, or the client does not read the connection's output.
func (m *meter) room() error {
	patience := time.NewTimer(bound.StrangerPause)
	defer patience.Stop()
	for {
		m.mu.Lock()
		ready, changed := m.in <= bound.StrangerBytes && !m.writing, m.changed
		m.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-changed:
		case <-m.closed:
			return net.ErrClosed
		case <-connlimit.Closed(m.Conn):
			return net.ErrClosed
		case <-patience.C:
			return errHolds
		}
	}
}

var errHolds = errors.New("calls without a credential are not read to their end")

// Write implements [net.Conn].
func (m *meter) Write(p []byte) (int, error) {
	if m.known.Load() {
		return m.Conn.Write(p)
	}
	m.write(true)
	n, err := m.Conn.Write(p)
	m.sent(p[:n])
	m.write(false)
	return n, err
}

// sent accounts for written bytes.
func (m *meter) sent(p []byte) {
	for len(p) > 0 {
		if m.rest > 0 {
			n := min(m.rest, len(p))
			m.rest -= n
			p = p[n:]
			continue
		}
		n := min(frameHeader-len(m.begun), len(p))
		m.begun = append(m.begun, p[:n]...)
		p = p[n:]
		if len(m.begun) < frameHeader {
			return
		}
		size, kind, flags, id := parse(m.begun)
		m.begun, m.rest = m.begun[:0], size
		switch {
		case kind == http2.FrameData:
			m.deliver(id, size)
		case kind == http2.FrameHeaders && flags.Has(http2.FlagHeadersEndStream):
			m.end(id)
		case kind == http2.FrameRSTStream:
			m.abort(id)
		}
	}
}

// parse reads the header of a frame.
func parse(h []byte) (size int, kind http2.FrameType, flags http2.Flags, id uint32) {
	return int(h[0])<<16 | int(h[1])<<8 | int(h[2]), http2.FrameType(h[3]), http2.Flags(h[4]),
		binary.BigEndian.Uint32(h[5:]) &^ (1 << 31)
}

// fragment is the part of a frame's payload that has headers (RFC 9113, section 6.2).
func fragment(payload []byte, kind http2.FrameType, flags http2.Flags) []byte {
	if kind != http2.FrameHeaders {
		return payload
	}
	padding := 0
	if flags.Has(http2.FlagHeadersPadded) && len(payload) > 0 {
		padding, payload = int(payload[0]), payload[1:]
	}
	if flags.Has(http2.FlagHeadersPriority) {
		payload = payload[min(5, len(payload)):]
	}
	return payload[:max(0, len(payload)-padding)]
}

// call notes the headers of a call.
func (m *meter) call(id uint32, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.calls[id]
	if w == nil {
		w = &weight{}
		m.calls[id] = w
	}
	w.in += size
	m.in += size
	m.current = id
}

// data notes data that came for a call. That of a call that has ended is dropped by the transport.
func (m *meter) data(id uint32, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.calls[id]; w != nil {
		w.in += size
		m.in += size
	}
}

// received notes that the handler of a call has data that was noted before.
func (m *meter) received(id uint32, size int) {
	m.reweigh(id, func(w *weight) {
		size = min(size, w.in)
		w.in -= size
		m.in -= size
	})
}

// answer accounts for a message that is about to be sent, once there is room for it beside the unsent ones.
func (m *meter) answer(ctx context.Context, id uint32, size int) error {
	for {
		m.mu.Lock()
		w, changed := m.calls[id], m.changed
		switch {
		case m.known.Load():
			m.mu.Unlock()
			return nil
		case w == nil || w.aborted:
			m.mu.Unlock()
			return status.Error(codes.Canceled, "the call has ended")
		case m.out == 0 || m.out+size <= bound.StrangerAnswerBytes:
			w.out += size
			m.out += size
			m.mu.Unlock()
			return nil
		}
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// settle adds the amount by which an answer exceeds its reservation.
func (m *meter) settle(id uint32, more int) {
	m.reweigh(id, func(w *weight) {
		w.out += more
		m.out += more
	})
}

// deliver notes that a part of a call's answers was sent.
func (m *meter) deliver(id uint32, size int) {
	m.reweigh(id, func(w *weight) {
		size = min(size, w.out)
		w.out -= size
		m.out -= size
	})
}

// reweigh changes the weight of a call in flight.
func (m *meter) reweigh(id uint32, change func(*weight)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.calls[id]; w != nil && !w.aborted {
		change(w)
		m.change()
	}
}

// end notes that the last frame of a call was sent: the transport holds nothing of it.
func (m *meter) end(id uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.calls[id]; w != nil {
		m.in -= w.in
		m.out -= w.out
		delete(m.calls, id)
		m.change()
	}
}

// abort notes that a call was reset.
func (m *meter) abort(id uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.calls[id]; w != nil && !w.aborted {
		w.aborted = true
		m.in += w.out
		m.out -= w.out
		w.in, w.out = w.in+w.out, 0
		m.change()
	}
}

// write notes whether the connection is being written to.
func (m *meter) write(now bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writing = now
	m.change()
}

// change wakes all that wait. The caller holds mu.
func (m *meter) change() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// AuthType implements [google.golang.org/grpc/credentials.AuthInfo].
func (*meter) AuthType() string { return "insecure" }

// metered is the connection of a call; nil within the process.
func metered(ctx context.Context) *meter {
	if p, ok := peer.FromContext(ctx); ok {
		m, _ := p.AuthInfo.(*meter)
		return m
	}
	return nil
}

// last is the call whose HEADERS frame was read last.
func (m *meter) last() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}
