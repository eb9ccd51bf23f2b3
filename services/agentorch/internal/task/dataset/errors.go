package dataset

import (
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Error describes a fault of a dataset, its place, and the remedy. To callers of RPCs it is an INVALID_REQUEST.
type Error struct {
	// File is the path or name of the dataset; empty if it has none.
	File string
	// Line is the first line of the row, from 1; 0 if the fault is not in one row.
	Line int
	// Field is the sample's field; empty when the fault is in no field.
	Field string
	// Column is the source column of the field; empty if there is none.
	Column string
	// Problem describes the fault and the remedy.
	Problem string
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("dataset")
	if e.File != "" {
		b.WriteString(" " + e.File)
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, ", line %d", e.Line)
	}
	if e.Field != "" {
		fmt.Fprintf(&b, ", field %s", e.Field)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %q", e.Column)
	}
	return b.String() + ": " + e.Problem
}

// Unwrap returns an INVALID_REQUEST error with the problem.
func (e *Error) Unwrap() error { return rpcerr.InvalidRequest("%s", e.Problem) }

func problem(format string, args ...any) *Error { return &Error{Problem: fmt.Sprintf(format, args...)} }
