package connmux_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/connmux"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// asServer is the variable that has the test's binary be the server that is attacked, so that its memory is its own.
const asServer = "EVALFLEET_TEST_ATTACKED"

// mayHave is how many connections an attacked server may have; 0 is the default.
var mayHave = map[string]int{"few": 100, "many": 0}

// serveAttacked serves until its input ends. It writes its address.
func serveAttacked() {
	log := slog.New(slog.DiscardHandler)
	tokens := auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")})
	rpcs, err := grpcserver.New(grpcserver.Options{Logger: log, Auth: tokens})
	if err != nil {
		panic(err)
	}
	toolv1.RegisterToolServiceServer(rpcs, toolv1.UnimplementedToolServiceServer{})
	modelv1.RegisterModelServiceServer(rpcs, modelv1.UnimplementedModelServiceServer{})
	s := connmux.New(connmux.Config{GRPC: rpcs, Handler: auth.Guard(tokens, http.NotFoundHandler()), Connections: mayHave[os.Getenv(asServer)], Logger: log})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_, _ = fmt.Fprintln(os.Stdout, l.Addr())
	_ = s.Serve(l)
}

// attacked is a server in a process of its own.
type attacked struct {
	address string
	pid     int
}

// startAttacked starts a server that may have few connections, or many.
func startAttacked(t *testing.T, connections string) *attacked {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), asServer+"="+connections)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return &attacked{address: strings.TrimSpace(address), pid: cmd.Process.Pid}
}

func (a *attacked) dial(t *testing.T, token string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpcclient.New(a.address, grpcclient.Options{Token: config.NewSecret(token)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn
}

// Who has not spoken yet, and may be about to show a credential, stays connected beside strangers that come and speak.
func TestAStrangerThatHasNotSpokenStaysBesideThoseThatHave(t *testing.T) {
	t.Parallel()
	const request = "GET / HTTP/1.1\r\nHost: x\r\n"
	for name, speak := range map[string]func(*testing.T, *attacked){
		"by gRPC": func(t *testing.T, server *attacked) {
			_, err := healthv1.NewHealthClient(server.dial(t, "")).Check(waittest.Context(t), &healthv1.HealthCheckRequest{})
			require.NoError(t, err)
		},
		"by HTTP": func(t *testing.T, server *attacked) {
			stranger, err := net.Dial("tcp", server.address)
			require.NoError(t, err)
			t.Cleanup(func() { stranger.Close() })
			_, err = io.WriteString(stranger, request+"\r\n")
			require.NoError(t, err)
			_, err = stranger.Read(make([]byte, 1))
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startAttacked(t, "few")
			caller, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.address)
			require.NoError(t, err)
			defer caller.Close()
			for range 150 { // Fifty strangers may be there. Without a difference, the caller would stay by luck in 2 of 100 cases.
				speak(t, server)
			}
			_, err = io.WriteString(caller, request+"Authorization: Bearer right\r\n\r\n")
			require.NoError(t, err)
			answer, err := http.ReadResponse(bufio.NewReader(caller), nil)
			require.NoError(t, err)
			defer answer.Body.Close()
			assert.Equal(t, http.StatusNotFound, answer.StatusCode)
		})
	}
}
