// Package logtest reads logs for tests, in the form `.eval`, those of the platform and those of Inspect, as strictly as
// Inspect does.
//
// A log may be unfinished: without header.json its journal counts. A member may occur more than once; the last one
// counts. Documents are returned unchanged, after a check of the members that every reader needs; the caller reads the
// rest.
package logtest

import (
	"archive/zip"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

var (
	// ErrNoArchive is the error if a file is not an archive.
	ErrNoArchive = errors.New("evallog: no archive")
	// ErrInvalid is the error if a document lacks a member, or has an invalid one.
	ErrInvalid = errors.New("evallog: invalid document")
	// ErrNoMember is the error if the archive lacks a required member.
	ErrNoMember = errors.New("evallog: member is missing")
	// ErrNoSample is the error if the log has no such sample.
	ErrNoSample = errors.New("evallog: no such sample")
	// ErrIncomplete is the error if the log does not have, or does not name, all samples.
	ErrIncomplete = errors.New("evallog: not all samples are there")
)

// methodZstd is the method by which Inspect compresses members.
const methodZstd = 93

// maxMember bounds a member once it is unpacked.
const maxMember = 1 << 30

// Log is an open log. It may be read concurrently.
type Log struct {
	zip *zip.Reader
	// members are the last entries of each name.
	members map[string]*zip.File
	names   []string
}

// Open opens an archive of that size. It fails with [ErrNoArchive].
func Open(r io.ReaderAt, size int64) (*Log, error) {
	z, err := zip.NewReader(r, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // Names are never used as paths.
		return nil, fmt.Errorf("%w: %w", ErrNoArchive, err)
	}
	z.RegisterDecompressor(methodZstd, zstd.ZipDecompressor())
	l := &Log{zip: z, members: map[string]*zip.File{}}
	for _, f := range z.File {
		if l.members[f.Name] == nil {
			l.names = append(l.names, f.Name)
		}
		l.members[f.Name] = f
	}
	return l, nil
}

// Header is the content of a log except its samples.
type Header struct {
	Version int
	Status  string
	Task    string
	// SampleIDs are the ids of all samples: texts and json.Numbers. Nil if the log does not name them.
	SampleIDs []any
	Epochs    int
	// Document is all of it.
	Document *orderedjson.Object
}

// Header reads the header.
func (l *Log) Header() (*Header, error) {
	if l.members["header.json"] != nil {
		document, err := l.object("header.json")
		if err != nil {
			return nil, err
		}
		return checkHeader(document)
	}
	start, err := l.object("_journal/start.json")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"version", "plan"} {
		if _, ok := start.Get(name); !ok {
			return nil, fmt.Errorf("%w: the start has no %s", ErrInvalid, name)
		}
	}
	return checkHeader(start)
}

// Part is a sample, or its summary.
type Part struct {
	ID       any // a text or a json.Number
	Epoch    int
	Document *orderedjson.Object
}

// Samples reads all samples, by epoch, then by id.
func (l *Log) Samples() ([]Part, error) {
	var parts []Part
	for _, name := range l.names {
		if !strings.HasPrefix(name, "samples/") || !strings.HasSuffix(name, ".json") {
			continue
		}
		part, err := l.part(name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	slices.SortStableFunc(parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), strings.Compare(sortKey(a.ID), sortKey(b.ID)))
	})
	return parts, nil
}

// Sample reads one sample. It fails with [ErrNoSample] if the log does not have it.
func (l *Log) Sample(id any, epoch int) (Part, error) {
	name := fmt.Sprintf("samples/%v_epoch_%d.json", id, epoch)
	if l.members[name] == nil {
		return Part{}, fmt.Errorf("%w: %v, epoch %d", ErrNoSample, id, epoch)
	}
	return l.part(name)
}

// Listed reads the samples that the header names, one after another. With all it fails unless the log is of a success
// and has every sample; otherwise it skips missing samples.
func (l *Log) Listed(all bool, yield func(Part) error) error {
	header, err := l.Header()
	if err != nil {
		return err
	}
	if header.SampleIDs == nil {
		return fmt.Errorf("%w: the log does not say which there are", ErrIncomplete)
	}
	if all && header.Status != "success" {
		return fmt.Errorf("%w: the log's status is %s", ErrIncomplete, header.Status)
	}
	for epoch := range header.Epochs {
		for _, id := range header.SampleIDs {
			part, err := l.Sample(id, epoch+1)
			if errors.Is(err, ErrNoSample) && !all {
				continue
			}
			if err == nil {
				err = yield(part)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Summaries reads the summaries, those of the journal if the log is not finished. Of several for one sample, the last
// counts.
func (l *Log) Summaries() ([]Part, error) {
	names := []string{"summaries.json"}
	if l.members[names[0]] == nil {
		names = nil
		count := 0
		for _, name := range l.names {
			if strings.HasPrefix(name, "_journal/summaries/") {
				count++
				names = append(names, fmt.Sprintf("_journal/summaries/%d.json", count))
			}
		}
	}
	parts := []Part{}
	for _, name := range names {
		value, err := l.value(name)
		if err != nil {
			return nil, err
		}
		list, ok := value.([]any)
		if !ok {
			return nil, fmt.Errorf("%w: %s is no list", ErrInvalid, name)
		}
		for _, item := range list {
			part, err := checkPart(item, summaryShape)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			parts = slices.DeleteFunc(parts, func(p Part) bool { return p.ID == part.ID && p.Epoch == part.Epoch })
			parts = append(parts, part)
		}
	}
	return parts, nil
}

func (l *Log) part(name string) (Part, error) {
	value, err := l.value(name)
	if err != nil {
		return Part{}, err
	}
	part, err := checkPart(value, sampleShape)
	if err != nil {
		return Part{}, fmt.Errorf("%s: %w", name, err)
	}
	return part, nil
}

func (l *Log) object(name string) (*orderedjson.Object, error) {
	value, err := l.value(name)
	if err != nil {
		return nil, err
	}
	object, ok := value.(*orderedjson.Object)
	if !ok {
		return nil, fmt.Errorf("%w: %s is no object", ErrInvalid, name)
	}
	return object, nil
}

// value reads a member. Non-finite numbers are the texts NaN, Infinity and -Infinity.
func (l *Log) value(name string) (any, error) {
	file := l.members[name]
	if file == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoMember, name)
	}
	r, err := file.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxMember+1))
	if err == nil && len(text) > maxMember {
		err = fmt.Errorf("it is over %d bytes", maxMember)
	}
	var value any
	if err == nil {
		value, err = orderedjson.Decode(quoteNumbers(text))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	return value, nil
}

func sortKey(id any) string {
	if n, ok := id.(json.Number); ok {
		return fmt.Sprintf("%020s", n)
	}
	return fmt.Sprint(id)
}
