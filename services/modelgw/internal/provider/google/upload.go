package google

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Files that a request names are uploaded before: https://ai.google.dev/api/files.
const (
	// keptFor is how long an uploaded file is named again; Google keeps it for 48 hours.
	keptFor = 47 * time.Hour
	// uploadTimeout bounds an upload, with the time in which Google reads the file.
	uploadTimeout = 20 * time.Minute
	// maxFiles bounds the files that are remembered.
	maxFiles = 1000
	// readyEvery is the time between two questions whether a file can be used, and maxQuestions bounds these.
	readyEvery   = 2 * time.Second
	maxQuestions = 300

	uploadURLHeader   = "X-Goog-Upload-Url"
	contentTypeHeader = "X-Goog-Upload-Header-Content-Type"
)

// Headers of the protocol by which files are uploaded.
var (
	startHeaders = map[string]string{"X-Goog-Upload-Protocol": "resumable", "X-Goog-Upload-Command": "start"}
	sendHeaders  = map[string]string{"X-Goog-Upload-Protocol": "resumable", "X-Goog-Upload-Command": "upload, finalize", "X-Goog-Upload-Offset": "0"}
)

// files are the files that a model's account has at Google. They are safe for concurrent use.
type files struct {
	// api is where files are uploaded, and stored where they are; the account's exchange reaches both.
	api, stored string
	exchange    *exchange.Exchange
	// plain has no credential: the address to which content is sent has one in itself.
	plain  *exchange.Exchange
	header http.Header
	// refused is what an answer that refuses a request means.
	refused func(status int, header http.Header, body []byte) *provider.Error
	// every is the time between two questions whether a file can be used.
	every time.Duration
	// missing is set once the server has said that it has no such API: media are then within requests.
	missing atomic.Bool

	// uploads are those in flight, by the files' content.
	uploads singleflight.Group

	mu    sync.Mutex
	known *lru.Cache[[sha256.Size]byte, uploaded]
}

type uploaded struct {
	uri   string
	until time.Time
}

// of uploads the audio, the videos and the documents of a request, and returns their addresses at Google by their data
// URIs, and those of the addresses that are remembered from earlier requests. Images, and media of a server without the
// API, stay within the request. So do all media of a request in a batch: it is found again by its body, which must not
// change when the file is uploaded again.
func (f *files) of(ctx context.Context, r *provider.Request) (all map[string]string, remembered []string, err error) {
	all = map[string]string{}
	if f == nil || r.Carrier != nil {
		return all, nil, nil
	}
	for _, m := range r.Messages {
		for _, part := range chat.Parts(m.GetContent()) {
			uri := chat.Media(part).GetUri()
			if !isFile(part) || all[uri] != "" || f.missing.Load() {
				continue
			}
			mediaType, data, inline := dialect.SplitDataURI(uri)
			if !inline {
				continue // The encoder refuses it.
			}
			if address, ok := f.find(keyOf(mediaType, data)); ok {
				all[uri], remembered = address, append(remembered, address)
				continue
			}
			address, err := f.once(ctx, mediaType, data)
			if err != nil {
				return nil, nil, err
			}
			if address != "" {
				all[uri] = address
			}
		}
	}
	return all, remembered, nil
}

// keyOf identifies a file by its content.
func keyOf(mediaType, data string) [sha256.Size]byte {
	return sha256.Sum256([]byte(mediaType + " " + data))
}

// find returns the address of a file that was uploaded before, and that Google should still have.
func (f *files) find(key [sha256.Size]byte) (address string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, ok := f.known.Get(key)
	return before.uri, ok && time.Now().Before(before.until)
}

// forget forgets files by their addresses.
func (f *files) forget(addresses []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lost [][sha256.Size]byte
	for key, file := range f.known.All() {
		if slices.Contains(addresses, file.uri) {
			lost = append(lost, key)
		}
	}
	for _, key := range lost {
		f.known.Remove(key)
	}
}

// refusesFile reports whether Google refused a request for a file in it, which was deleted or is another project's: it
// answers "You do not have permission to access the File … or it may not exist".
func refusesFile(err error) bool {
	failure, ok := provider.As(err)
	return ok && (failure.Status == http.StatusForbidden || failure.Status == http.StatusNotFound) && strings.Contains(strings.ToLower(failure.Message), "file")
}

func isFile(part *contentv1.Content) bool {
	return part.GetAudio() != nil || part.GetVideo() != nil || part.GetDocument() != nil
}

// once uploads a file. Requests that need the same file share an upload, which continues for the others when one of
// them ends.
func (f *files) once(ctx context.Context, mediaType, data string) (string, error) {
	key := keyOf(mediaType, data)
	uploaded := f.uploads.DoChan(string(key[:]), func() (any, error) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), uploadTimeout)
		defer cancel()
		return f.upload(within, mediaType, data)
	})
	select {
	case result := <-uploaded:
		address, _ := result.Val.(string)
		return address, result.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// upload uploads a file, and returns its address; empty if the server has no such API.
func (f *files) upload(ctx context.Context, mediaType, data string) (string, error) {
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return "", nil //nolint:nilerr // The server says what is wrong with it.
	}
	until := time.Now().Add(keptFor)
	to, err := f.start(ctx, mediaType, len(content))
	if err != nil || to == "" {
		return "", err
	}
	uri, err := f.send(ctx, to, mediaType, content)
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known.Put(keyOf(mediaType, data), uploaded{uri, until}, 1)
	return uri, nil
}

// start asks for the address to which a file is sent.
func (f *files) start(ctx context.Context, mediaType string, size int) (string, error) {
	answer, err := f.request(ctx, f.exchange, &exchange.Call{URL: f.api, Header: f.headerOf(f.header, startHeaders, mediaType)}, func(dst []byte) ([]byte, error) {
		return fmt.Appendf(dst, `{"file":{"mime_type":%s,"size_bytes":%d}}`, jsonwrite.AppendText(nil, mediaType), size), nil
	})
	switch {
	case err != nil:
		return "", err
	case answer.status == http.StatusNotFound:
		f.missing.Store(true)
		return "", nil
	case answer.status != http.StatusOK:
		return "", f.refused(answer.status, answer.header, answer.body)
	}
	to, err := uploadAddress(answer.header, f.api)
	if err != nil {
		return "", f.exchange.Malformed(err)
	}
	return to, nil
}

// uploadAddress returns the address to which a file is sent, as an answer of the API names it.
func uploadAddress(answer http.Header, api string) (string, error) {
	to, err := url.Parse(answer.Get(uploadURLHeader))
	if own, _ := url.Parse(api); err != nil || to.Scheme != "https" && (to.Scheme != own.Scheme || to.Host != own.Host) {
		return "", errors.New("the answer has no address for a file")
	}
	return to.String(), nil
}

// file is a file as Google describes it.
type file struct {
	Name  string `json:"name"`
	URI   string `json:"uri"`
	State string `json:"state"`
}

// send sends the content of a file, and waits until Google has read it.
func (f *files) send(ctx context.Context, to, mediaType string, content []byte) (string, error) {
	answer, err := f.request(ctx, f.plain, &exchange.Call{URL: to, Header: f.headerOf(http.Header{}, sendHeaders, mediaType)}, func(dst []byte) ([]byte, error) {
		return append(dst, content...), nil
	})
	var said struct {
		File file `json:"file"`
	}
	for questions := 0; ; questions++ {
		switch {
		case err != nil:
			return "", err
		case answer.status != http.StatusOK:
			return "", f.refused(answer.status, answer.header, answer.body)
		}
		if questions == 0 {
			err = json.Unmarshal(answer.body, &said)
		} else {
			err = json.Unmarshal(answer.body, &said.File)
		}
		switch {
		case err != nil || said.File.URI == "" || said.File.State == "FAILED" || questions == maxQuestions:
			return "", f.exchange.Malformed(fmt.Errorf("a file of the type %s cannot be used", mediaType))
		case said.File.State != "PROCESSING":
			return said.File.URI, nil
		}
		if err := retry.Sleep(ctx, f.every); err != nil {
			return "", err
		}
		answer, err = f.request(ctx, f.exchange, &exchange.Call{
			URL: f.stored + url.PathEscape(strings.TrimPrefix(said.File.Name, "files/")), Method: http.MethodGet, Header: f.header.Clone(),
		}, nil)
	}
}

// uploadHeader is the header of a step of an upload: base with the step's own members.
func uploadHeader(base http.Header, step map[string]string) http.Header {
	h := base.Clone()
	for name, value := range step {
		h.Set(name, value)
	}
	return h
}

// headerOf is uploadHeader for a file of a type.
func (f *files) headerOf(base http.Header, step map[string]string, mediaType string) http.Header {
	h := uploadHeader(base, step)
	h.Set(contentTypeHeader, mediaType)
	return h
}

// answered is an answer about a file.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// request makes a request, whose body encode appends; nil is none.
func (f *files) request(ctx context.Context, x *exchange.Exchange, call *exchange.Call, encode func([]byte) ([]byte, error)) (answered, error) {
	var body *buffer.Buffer
	if encode != nil {
		var err error
		if body, err = x.Encode(encode); err != nil {
			return answered{}, err
		}
		defer body.Release()
	}
	answer, err := x.Send(ctx, call, body)
	if err != nil {
		return answered{}, err
	}
	defer answer.Body.Close()
	read, err := transport.Read(answer, transport.MaxErrorBytes)
	defer read.Release()
	if err != nil && answer.StatusCode == http.StatusOK {
		return answered{}, transport.Broken(ctx, Name, err)
	}
	return answered{answer.StatusCode, answer.Header, append([]byte(nil), read.Bytes...)}, nil
}
