package gateway_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/blob/blobserver"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/gateway"
)

// maxBlob is the largest body that the store of these tests accepts, in bytes.
const maxBlob = 8 << 20

// boxes is a SandboxService with one file, whose content is its path.
type boxes struct {
	sandboxv1.UnimplementedSandboxServiceServer
	// begun gets the path of an upload, uploaded its target and content, or its error.
	begun, uploaded chan string
}

func (b *boxes) DownloadFile(req *sandboxv1.DownloadFileRequest, s sandboxv1.SandboxService_DownloadFileServer) error {
	info := &sandboxv1.FileInfo{Path: req.GetPath(), Size: int64(len(req.GetPath()))}
	switch req.GetPath() {
	case "missing":
		return rpcerr.FileNotFound(req.GetPath(), "no file %s", req.GetPath())
	case "cut": // The file became shorter while it was read.
		info.Size += 100
	case "made up by the kernel":
		info.Size = 0
	}
	return s.Send(&sandboxv1.DownloadFileResponse{Info: info, Chunk: []byte(req.GetPath()[req.GetOffset():])})
}

func (b *boxes) UploadFile(s sandboxv1.SandboxService_UploadFileServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	b.begun <- first.GetPath()
	var content []byte
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			b.uploaded <- fmt.Sprintf("%s %s %o %s", first.GetSandbox(), first.GetPath(), first.GetMode(), content)
			return s.SendAndClose(&sandboxv1.UploadFileResponse{Info: &sandboxv1.FileInfo{Size: int64(len(content))}})
		}
		if err != nil {
			b.uploaded <- err.Error()
			return err
		}
		content = append(content, r.GetChunk()...)
	}
}

// logs is an EvalService whose logs have two chunks, or one and an error.
type logs struct {
	agentv1.UnimplementedEvalServiceServer
}

func (logs) ExportEval(req *agentv1.ExportEvalRequest, s agentv1.EvalService_ExportEvalServer) error {
	name := "log.eval"
	if req.GetFormat() == agentv1.LogFormat_LOG_FORMAT_JSON {
		name = "log.json"
	}
	err := s.Send(&agentv1.ExportEvalResponse{FileName: name, Chunk: []byte(`{"results":`)})
	if strings.HasSuffix(req.GetName(), "/broken") {
		return rpcerr.ResourceNotFound(req.GetName())
	}
	return errors.Join(err, s.Send(&agentv1.ExportEvalResponse{Chunk: []byte(` "C"}`)}))
}

// startFiles serves a gateway over blobs, a sandbox and logs, and returns the URL of a project.
func startFiles(t *testing.T) (url string, box *boxes) {
	t.Helper()
	store, err := disk.Open(disk.Config{Dir: t.TempDir(), MaxBytes: maxBlob})
	require.NoError(t, err)
	box = &boxes{begun: make(chan string, 2), uploaded: make(chan string, 2)}
	return "http://" + startServing(t, func(r grpc.ServiceRegistrar) {
		blobserver.New(store).Register(r)
		sandboxv1.RegisterSandboxServiceServer(r, box)
		agentv1.RegisterEvalServiceServer(r, logs{})
	}, gateway.Config{}, "") + "/api/v1/projects/default", box
}

func TestABodyOfAnySizeGoesUpAndComesDownAsItIs(t *testing.T) {
	t.Parallel()
	url, _ := startFiles(t)
	large := strings.Repeat("0123456789abcdef", (7<<20)/16) + "and a rest" // more than a message, and than a JSON body
	for name, content := range map[string]string{"nothing": "", "small": "a,b\n1,2\n", "large": large} {
		for _, method := range []string{http.MethodPut, http.MethodPost} {
			sum := sha256.Sum256([]byte(content))
			hash := hex.EncodeToString(sum[:])
			resp, body := call(t, method, url+"/blobs:upload?hash="+hash, content, map[string]string{"Content-Type": "text/csv"})
			require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", name, body)
			var ref struct{ Hash, Size, MediaType string }
			require.NoError(t, json.Unmarshal([]byte(body), &ref))
			assert.Equal(t, hash, ref.Hash, name)
			assert.Equal(t, "text/csv", ref.MediaType, name)
		}
	}
	sum := sha256.Sum256([]byte(large))
	hash := hex.EncodeToString(sum[:])
	get := func(query string, headers map[string]string) (*http.Response, string) {
		return call(t, http.MethodGet, url+"/blobs/"+hash+":download"+query, "", headers)
	}
	resp, body := get("", nil)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.True(t, bytes.Equal([]byte(large), []byte(body)), "%d bytes came of %d", len(body), len(large))
	assert.EqualValues(t, len(large), resp.ContentLength)
	assert.Equal(t, "text/csv", resp.Header.Get("Content-Type"))
	assert.Equal(t, `"`+hash+`"`, resp.Header.Get("ETag"))

	resp, body = get("", map[string]string{"Range": "bytes=6291456-6291459"})
	assert.Equal(t, http.StatusPartialContent, resp.StatusCode)
	assert.Equal(t, "0123", body)
	resp, body = get("", map[string]string{"Range": "bytes=-10"})
	assert.Equal(t, http.StatusPartialContent, resp.StatusCode)
	assert.Equal(t, "and a rest", body)
	resp, body = get("", map[string]string{"Range": "bytes=0-0,2-2"})
	assert.Equal(t, http.StatusOK, resp.StatusCode, "several parts are not sent")
	assert.Len(t, body, len(large))
	resp, _ = get("", map[string]string{"Range": "bytes=99999999-"})
	assert.Equal(t, http.StatusRequestedRangeNotSatisfiable, resp.StatusCode)
	resp, body = get("", map[string]string{"If-None-Match": `"` + hash + `"`})
	assert.Equal(t, http.StatusNotModified, resp.StatusCode, body)
	resp, body = get(fmt.Sprintf("?offset=%d", len(large)-4), nil)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "rest", body)
	assert.Empty(t, resp.Header.Get("ETag"), "a part is another content")

	resp, body = get("", map[string]string{"Accept": "text/plain, application/json;q=0.5"})
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	var lines []byte
	for line := range strings.Lines(body) {
		var m struct{ Result struct{ Chunk string } }
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		piece, err := base64.StdEncoding.DecodeString(m.Result.Chunk)
		require.NoError(t, err)
		lines = append(lines, piece...)
	}
	assert.True(t, bytes.Equal([]byte(large), lines), "%d bytes came of %d", len(lines), len(large))
}

func TestWhatIsWrongWithAFileOverREST(t *testing.T) {
	t.Parallel()
	url, _ := startFiles(t)
	absent := strings.Repeat("0", 64)
	for name, tt := range map[string]struct {
		method, path, body string
		headers            map[string]string
		status             int
		says               []string
	}{
		"another content":         {"PUT", "/blobs:upload?hash=" + absent, "x", nil, 400, []string{`"field":"hash"`, absent}},
		"no hash":                 {"PUT", "/blobs:upload?hash=abc", "x", nil, 400, []string{`"field":"hash"`}},
		"more than is kept":       {"PUT", "/blobs:upload", strings.Repeat("x", maxBlob+1), nil, 400, []string{"OUTPUT_LIMIT", "8388608"}},
		"a key":                   {"PUT", "/blobs:upload", "x", map[string]string{"Idempotency-Key": "k"}, 400, []string{"takes no key"}},
		"a form":                  {"POST", "/blobs:upload", "x", map[string]string{"Content-Type": "multipart/form-data; boundary=x"}, 400, []string{"curl -T"}},
		"an unknown parameter":    {"PUT", "/blobs:upload?hsh=1", "x", nil, 400, []string{"hsh", "known: mediaType, hash"}},
		"a parameter in the path": {"PUT", "/blobs:upload?parent=projects/other", "x", nil, 400, []string{"parent"}},
		"bytes in the query":      {"PUT", "/blobs:upload?chunk=eA==", "x", nil, 400, []string{"chunk"}},
		"a path twice":            {"PUT", "/sandboxes/s:uploadFile?path=a&path=b", "x", nil, 400, []string{"path: is given 2 times"}},
		"an octal mode":           {"PUT", "/sandboxes/s:uploadFile?mode=0400&path=a", "x", nil, 400, []string{"mode", "0400", "in decimal"}},
		"no target":               {"PUT", "/sandboxes/s:uploadFile?mode=x&path=a", "x", nil, 400, []string{"mode"}},
		"no such body":            {"GET", "/blobs/" + absent + ":download", "", nil, 404, []string{"RESOURCE_NOT_FOUND", `"status":"NOT_FOUND"`}},
		"no such file":            {"GET", "/sandboxes/s:downloadFile?path=missing", "", nil, 404, []string{"FILE_NOT_FOUND"}},
		"no path":                 {"GET", "/sandboxes/s:downloadFile", "", nil, 400, []string{`"field":"path"`}},
		"a wrong token":           {"PUT", "/blobs:upload", "x", map[string]string{"Authorization": "Bearer wrong"}, 401, []string{"TOKEN_INVALID"}},
		"an offset that is none":  {"GET", "/blobs/" + absent + ":download?offset=x", "", nil, 400, []string{"offset"}},
		"an unknown name":         {"GET", "/evals/e:export?formt=json", "", nil, 400, []string{"formt"}},
	} {
		resp, body := call(t, tt.method, url+tt.path, tt.body, tt.headers)
		assert.Equal(t, tt.status, resp.StatusCode, "%s: %s", name, body)
		assert.Equal(t, "application/json", resp.Header.Get("Content-Type"), name)
		assert.True(t, strings.HasPrefix(body, `{"error":{"code":`), "%s: %s", name, body)
		for _, said := range tt.says {
			assert.Contains(t, strings.ReplaceAll(body, `": "`, `":"`), said, name)
		}
	}
}

func TestFilesOfSandboxesAndLogsOverREST(t *testing.T) {
	t.Parallel()
	url, box := startFiles(t)
	resp, body := call(t, http.MethodPut, url+"/sandboxes/s:uploadFile?path=d/f&mode=493", "bytes\x00as they are", nil)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	assert.Equal(t, "projects/default/sandboxes/s d/f 755 bytes\x00as they are", waittest.For(t, box.uploaded, "the upload"))
	assert.Contains(t, body, `"size":"17"`)

	resp, body = call(t, http.MethodGet, url+"/sandboxes/s:downloadFile?path=a/note.txt", "", nil)
	assert.Equal(t, "a/note.txt", body)
	assert.EqualValues(t, 10, resp.ContentLength)
	assert.Equal(t, "application/octet-stream", resp.Header.Get("Content-Type"))
	assert.Equal(t, `attachment; filename=note.txt`, resp.Header.Get("Content-Disposition"))
	assert.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	_, body = call(t, http.MethodGet, url+"/sandboxes/s:downloadFile?path=a/note.txt", "", map[string]string{"Range": "bytes=2-"})
	assert.Equal(t, "note.txt", body)
	_, body = call(t, http.MethodGet, url+"/sandboxes/s:downloadFile?path=made+up+by+the+kernel", "", nil)
	assert.Equal(t, "made up by the kernel", body)

	for query, want := range map[string][]string{"": {"log.eval", "application/octet-stream"}, "?format=json": {"log.json", "application/json"}} {
		resp, body = call(t, http.MethodGet, url+"/evals/e:export"+query, "", nil)
		assert.JSONEq(t, `{"results": "C"}`, body)
		assert.Equal(t, want, []string{strings.TrimPrefix(resp.Header.Get("Content-Disposition"), "attachment; filename="), resp.Header.Get("Content-Type")})
	}
	for _, path := range []string{"/evals/broken:export", "/sandboxes/s:downloadFile?path=cut"} {
		req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodGet, url+path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer right")
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, resp.Body.Close())
		}
		assert.Error(t, err, "%s: a file that breaks off is not taken for a whole one", path)
	}
}

// If a client breaks off an upload, the service receives an error and stores nothing.
func TestAnUploadThatBreaksOff(t *testing.T) {
	t.Parallel()
	url, box := startFiles(t)
	address, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	for _, head := range []string{"Content-Length: 100\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n"} {
		conn, err := (&net.Dialer{}).DialContext(waittest.Context(t), "tcp", address)
		require.NoError(t, err)
		_, err = io.WriteString(conn, "PUT /"+path+"/sandboxes/s:uploadFile?path=f HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n"+head)
		require.NoError(t, err)
		assert.Equal(t, "f", waittest.For(t, box.begun, "the beginning of the upload"))
		require.NoError(t, conn.Close())
		assert.Contains(t, waittest.For(t, box.uploaded, "the end of the upload"), context.Canceled.Error())
	}
}

// The OpenAPI document describes uploads, and downloads as bytes.
func TestTheDocumentHasFiles(t *testing.T) {
	t.Parallel()
	url, _ := startFiles(t)
	address, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	_, body := call(t, http.MethodGet, "http://"+address+"/openapi.json", "", nil)
	var document struct {
		Paths       map[string]map[string]struct{ Consumes, Produces []string }
		Definitions map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(body), &document))
	for _, path := range []string{"/blobs:upload", "/sandboxes/{sandbox}:uploadFile"} {
		for _, method := range []string{"put", "post"} {
			assert.Equal(t, []string{"application/octet-stream"}, document.Paths["/api/v1/projects/{project}"+path][method].Consumes, path)
		}
	}
	for _, path := range []string{"/blobs/{hash}:download", "/sandboxes/{sandboxe}:downloadFile", "/evals/{eval}:export"} {
		assert.Contains(t, document.Paths["/api/v1/projects/{project}"+path]["get"].Produces, "application/octet-stream", path)
	}
	for _, ref := range []string{"BlobRef", "FileInfo"} {
		assert.Contains(t, document.Definitions, ref)
	}
}

// The curl examples about files in docs/rest.md work as written.
func TestFilesByCurl(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	text, err := os.ReadFile("../../docs/rest.md")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(text), "\n## Files\n")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, blocks)
	helper := regexp.MustCompile(`(?m)^call\(\) .*$`).FindString(blocks[0][1])
	require.NotEmpty(t, helper)
	typed := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(after)
	require.Len(t, typed, 2)

	url, box := startFiles(t)
	folder := t.TempDir()
	for name, content := range map[string]string{"rows.jsonl": `{"input": "1"}`, "main.py": "print()"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	sum := sha256.Sum256([]byte(`{"input": "1"}`))
	c := exec.CommandContext(waittest.Context(t), "bash", "-eu", "-o", "pipefail", "-c", helper+"\n"+typed[1])
	c.Dir = folder
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "token=right", "api=" + url, "hash=" + hex.EncodeToString(sum[:]), "sandbox=s", "eval=e"}
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, "projects/default/sandboxes/s main.py 755 print()", waittest.For(t, box.uploaded, "the upload"))
	for name, content := range map[string]string{"rows.jsonl": `{"input": "1"}`, "out.txt": "out.txt", "log.eval": `{"results": "C"}`} {
		got, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		assert.Equal(t, content, string(got))
	}
	assert.Contains(t, string(out), `"C"`)
}
