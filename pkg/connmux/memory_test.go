//go:build !race

package connmux_test

// Without the race detector: with it, everything takes more memory.

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// mostMiB is the most memory that the server has had.
func (a *attacked) mostMiB(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kB >> 10
}

// attacker is a connection that frames are written to as they come. Its flow-control window is 0: answers are not
// delivered.
type attacker struct {
	*http2.Framer
	net.Conn
	out    *bufio.Writer
	stream uint32

	block   bytes.Buffer
	encoder *hpack.Encoder
	// indexed is the block of a second call, which refers to fields of the first alone, and so is that of all further
	// calls.
	indexed []byte
}

func (a *attacked) attacker(t *testing.T) *attacker {
	t.Helper()
	conn, err := net.Dial("tcp", a.address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	x := &attacker{Conn: conn, out: bufio.NewWriter(conn), stream: math.MaxUint32}
	x.Framer = http2.NewFramer(x.out, conn)
	x.encoder = hpack.NewEncoder(&x.block)
	_, _ = x.out.WriteString(http2.ClientPreface)
	_ = x.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	return x
}

// begin writes the headers of a call, the same for all calls of a connection. Each of the fields takes one byte.
func (x *attacker) begin(method string, fields int) error {
	x.stream += 2
	block := x.indexed
	if block == nil {
		block = x.encode(method, fields)
		if x.stream > 1 {
			x.indexed = bytes.Clone(block)
		}
	}
	return x.WriteHeaders(http2.HeadersFrameParam{StreamID: x.stream, BlockFragment: block, EndHeaders: true})
}

func (x *attacker) encode(method string, fields int) []byte {
	x.block.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}} {
		_ = x.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	for i := range fields {
		_ = x.encoder.WriteField(hpack.HeaderField{Name: string(rune('a'+i%26)) + string(rune('a'+i/26%4))})
	}
	return x.block.Bytes()
}

// read waits until the server has read all that was written, or has closed the connection.
func (x *attacker) read() {
	_ = x.WritePing(false, [8]byte{1})
	_ = x.out.Flush()
	for {
		switch f, err := x.ReadFrame(); {
		case err != nil:
			return
		case f.Header().Type == http2.FramePing && f.Header().Flags.Has(http2.FlagPingAck):
			return
		}
	}
}

const (
	check   = healthv1.Health_Check_FullMethodName
	reflect = reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName
)

// message is one of gRPC's, below 64 KiB.
func message(m proto.Message) []byte {
	body, _ := proto.Marshal(m)
	return append([]byte{0, 0, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

// The server holds little for connections without a credential, for everything that they send and leave unread. It
// answers others meanwhile.
func TestConnectionsWithoutACredentialTakeLittleMemory(t *testing.T) {
	t.Parallel()
	const (
		connections = 8
		calls       = 200
		fields      = 1500
		maxMiB      = 96
	)
	empty := message(&healthv1.HealthCheckRequest{})
	file := message(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "evalfleet.model.v1.ModelService",
	}})
	more := map[string]int{"headers that set the table's size": 32} // Each takes little.
	for name, attack := range map[string]func(*attacker) error{
		"answers that are not read": func(x *attacker) error {
			_ = x.begin(check, fields)
			return x.WriteData(x.stream, true, empty)
		},
		"calls that are reset": func(x *attacker) error {
			_ = x.begin(check, fields)
			return x.WriteRSTStream(x.stream, http2.ErrCodeCancel)
		},
		// A block of headers may begin with the size of the table for them (RFC 7541, section 4.2).
		"headers that set the table's size": func(x *attacker) error {
			if size := []byte{0x3f, 0xe1, 0x1f}; x.indexed != nil && !bytes.HasPrefix(x.indexed, size) {
				x.indexed = append(size, x.indexed...)
			}
			_ = x.begin(check, fields)
			return x.WriteData(x.stream, true, empty)
		},
		"refused calls": func(x *attacker) error {
			return x.begin(toolv1.ToolService_ListTools_FullMethodName, fields)
		},
		"data of calls that are done": func(x *attacker) error {
			_ = x.begin(check, 0)
			_ = x.WriteData(x.stream, false, empty)
			for range 60 {
				_ = x.WriteData(x.stream, false, make([]byte, 16<<10))
			}
			return nil
		},
		"large answers that are not read": func(x *attacker) error {
			_ = x.begin(reflect, 0)
			return x.WriteData(x.stream, true, file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startAttacked(t, "few")
			var attacks sync.WaitGroup
			for range cmp.Or(more[name], connections) {
				x := server.attacker(t)
				require.NoError(t, x.SetDeadline(time.Now().Add(time.Minute)))
				attacks.Go(func() {
					for range calls {
						if attack(x) != nil {
							return // The server has closed the connection.
						}
					}
					x.read()
				})
			}
			waittest.Return(t, attacks.Wait, "the attacks")
			mib := server.mostMiB(t)
			t.Logf("%d MiB", mib)
			assert.Less(t, mib, maxMiB)
			stranger, known := server.dial(t, ""), server.dial(t, "right")
			_, err := healthv1.NewHealthClient(stranger).Check(waittest.Context(t), &healthv1.HealthCheckRequest{})
			require.NoError(t, err)
			_, err = toolv1.NewToolServiceClient(known).ListTools(waittest.Context(t), &toolv1.ListToolsRequest{Parent: "projects/default"})
			assert.Equal(t, codes.Unimplemented, rpcerr.Code(err), "%v", err)
		})
	}
}

// A connection that has sent nothing takes little, and so does one that has and waits for its turn.
func TestAConnectionThatWaitsTakesLittleMemory(t *testing.T) {
	t.Parallel()
	const connections, maxKiB = 1000, 24
	server := startAttacked(t, "few")
	before := server.mostMiB(t)
	for i := range connections + bound.Strangers {
		conn, err := net.Dial("tcp", server.address)
		require.NoError(t, err)
		defer conn.Close()
		if i%2 == 0 {
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n")
			require.NoError(t, err)
		}
	}
	_, err := toolv1.NewToolServiceClient(server.dial(t, "right")).ListTools(waittest.Context(t), &toolv1.ListToolsRequest{Parent: "projects/default"})
	require.Equal(t, codes.Unimplemented, rpcerr.Code(err), "%v", err)
	kib := (server.mostMiB(t) - before) << 10 / connections
	t.Logf("%d KiB each", kib)
	assert.Less(t, kib, maxKiB)
}
