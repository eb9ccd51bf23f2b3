package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/services/allinone/internal/printable"
)

// emit writes a message as a line of JSON, in the form of the REST API.
func (a *app) emit(m proto.Message) error {
	b, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "%s\n", b)
	return err
}

// emitAll writes a list of messages, each as emit does.
func emitAll[M proto.Message](a *app, list []M) error {
	for _, m := range list {
		if err := a.emit(m); err != nil {
			return err
		}
	}
	return nil
}

// table writes rows under headings. In a terminal it keeps to the width; in a pipe nothing is cut.
func (a *app) table(head []string, rows [][]string) {
	for line := range strings.Lines(tableText(head, rows, a.StdoutWidth()) + "\n") {
		_, _ = io.WriteString(a.Stdout, strings.TrimRight(line, " \n")+"\n") // Main reports what cannot be written.
	}
}

// fits reports whether nothing of a table is cut.
func (a *app) fits(head []string, rows [][]string) bool {
	width := a.StdoutWidth()
	return width == 0 || text.LongestLineLen(tableText(head, rows, 0)) <= width+padding
}

// padding is how many blanks follow each column.
const padding = 2

// tableText is a table of at most so many columns; 0 is any number.
func tableText(head []string, rows [][]string, width int) string {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Name:    "evalfleet",
		Box:     table.BoxStyle{PaddingRight: strings.Repeat(" ", padding), UnfinishedRow: "…"},
		Format:  table.FormatOptions{Header: text.FormatUpper},
		Options: table.OptionsNoBordersAndSeparators,
	})
	if width > 0 {
		t.Style().Size.WidthMax = width
	}
	t.AppendHeader(cells(head))
	for _, row := range rows {
		t.AppendRow(cells(row))
	}
	return t.Render()
}

func cells(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, t := range texts {
		row[i] = text.Snip(printable.Line(t), 200, "…")
	}
	return row
}

// note writes for the person at the terminal what is no result. Its arguments are as those of print.
func (a *app) note(format string, args ...any) {
	if !a.json {
		say(a.Stderr, format, args)
	}
}

// print writes a line for people. Texts among args are others' and are written on one line, without what a terminal
// would act on; but lines keep their breaks, and bytes, which are JSON, are written as they are.
func (a *app) print(format string, args ...any) { say(a.Stdout, format, args) }

// answer writes what a model answered: as it is into a pipe or file, and without what a terminal would act on into one.
func (a *app) answer(text string) {
	if a.StdoutWidth() > 0 {
		a.print("%s", lines(text))
	} else {
		a.print("%s", []byte(text))
	}
}

// lines is an argument of print that may have several lines.
type lines string

func say(to io.Writer, format string, args []any) {
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			args[i] = printable.Line(v)
		case lines:
			args[i] = printable.Text(string(v))
		case error:
			args[i] = printable.Line(v.Error())
		}
	}
	fmt.Fprintf(to, format+"\n", args...)
}

// when writes a time as people in its place would; nothing for none.
func when(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Local().Format(time.DateTime)
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// output is the standard output. It keeps the first error, because most lines are written without a look at it. It may
// be used concurrently.
type output struct {
	to  io.Writer
	mu  sync.Mutex
	err error
}

// Write implements [io.Writer].
func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// inherited is the standard output for a program that this one starts: a terminal stays one.
func inherited(stdout io.Writer) io.Writer {
	if o, ok := stdout.(*output); ok {
		return o.to
	}
	return stdout
}

// failed is why output is missing; nil if its reader has gone, which had enough of it.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return o.err
}
