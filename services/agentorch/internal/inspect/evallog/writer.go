package evallog

import (
	"archive/zip"
	"fmt"
	"io"
	"time"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Writer writes a log, sample by sample. It is used by one goroutine.
type Writer interface {
	// Sample adds a sample. It keeps nothing of it but its summary.
	Sample(s *Sample) error
	// Close writes the parts that follow the samples. It does not close the underlying writer.
	Close(reductions []Reduction) error
}

// Names of members of an archive.
const (
	memberStart      = "_journal/start.json"
	memberSummaries  = "summaries.json"
	memberReductions = "reductions.json"
	memberHeader     = "header.json"
)

// archive is the form `.eval`.
type archive struct {
	zip       *zip.Writer
	header    *Header
	at        time.Time
	summaries jsonwrite.Writer
}

// NewArchive begins a log in the form `.eval`: a zip archive whose members are deflated. It is written sequentially,
// without seeking.
func NewArchive(w io.Writer, h *Header) (Writer, error) {
	a := &archive{zip: zip.NewWriter(w), header: h, at: h.Eval.Created}
	a.summaries.BeginList()
	return a, a.member(memberStart, h.start())
}

func (a *archive) Sample(s *Sample) error {
	s.summary(&a.summaries)
	return a.member(s.ID.member(s.Epoch), s.json())
}

func (a *archive) Close(reductions []Reduction) error {
	a.summaries.EndList()
	if err := a.member(memberSummaries, a.summaries.Bytes()); err != nil {
		return err
	}
	if len(reductions) > 0 {
		var w jsonwrite.Writer
		w.BeginList()
		for i := range reductions {
			reductions[i].write(&w)
		}
		w.EndList()
		if err := a.member(memberReductions, w.Bytes()); err != nil {
			return err
		}
	}
	var w jsonwrite.Writer
	w.BeginObject()
	a.header.write(&w)
	w.EndObject()
	if err := a.member(memberHeader, w.Bytes()); err != nil {
		return err
	}
	return a.zip.Close()
}

// member writes one member. All members have the time of the evaluation, so that equal logs have equal bytes.
func (a *archive) member(name string, content []byte) error {
	m, err := a.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: a.at.UTC()})
	if err == nil {
		_, err = m.Write(content)
	}
	if err != nil {
		return fmt.Errorf("member %.100q: %w", name, err)
	}
	return nil
}

// document is the form `.json`.
type document struct {
	w     io.Writer
	began bool
}

// NewDocument begins a log in the form `.json`: one document.
func NewDocument(w io.Writer, h *Header) (Writer, error) {
	var b jsonwrite.Writer
	b.BeginObject()
	h.write(&b)
	b.Key("samples")
	b.BeginList()
	_, err := w.Write(b.Bytes())
	return &document{w: w}, err
}

func (d *document) Sample(s *Sample) error {
	if d.began {
		if _, err := io.WriteString(d.w, ","); err != nil {
			return err
		}
	}
	d.began = true
	_, err := d.w.Write(s.json())
	return err
}

func (d *document) Close(reductions []Reduction) error {
	var w jsonwrite.Writer
	w.BeginList()
	for i := range reductions {
		reductions[i].write(&w)
	}
	w.EndList()
	text := "]"
	if len(reductions) > 0 {
		text += `,"reductions":` + w.String()
	}
	_, err := io.WriteString(d.w, text+"}\n")
	return err
}

// FileName is the name under which readers look for a log: its time, task and id. None of these may hold the characters
// that separate them.
func FileName(e *Eval, extension string) string {
	return fmt.Sprintf("%s_%s_%s.%s", component(e.Created.UTC().Format("2006-01-02T15:04:05-07:00")), component(e.Task), component(e.TaskID), extension)
}

// component replaces characters that separate components, or that no file name may hold.
func component(text string) string {
	clean := make([]rune, 0, len(text))
	for _, r := range text {
		switch {
		case r < ' ' || r == '_' || r == '/' || r == ':' || r == '+' || r == '\\':
			r = '-'
		}
		clean = append(clean, r)
	}
	return string(clean)
}
