package rpcerr

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/bound"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
)

// ToStatus turns err into the status that a client receives. A fault of ours, and an error of no kind, becomes INTERNAL
// without its text, which belongs in the log.
func ToStatus(err error) *status.Status { return ToStatusUnder(err, "") }

// ToStatusUnder is ToStatus with a request id, under which the log has the cause. A fault of ours names the id. A fault
// that came from another service is unchanged: it names the id in that service's log.
func ToStatusUnder(err error, requestID string) *status.Status {
	s := ToPeer(err)
	if e, ok := As(err); s.Code() == codes.Internal && (!ok || e.ours()) {
		return Hidden(requestID).status()
	}
	return s
}

// ToPeer turns err into the status for a part of the same service, or for a successor that reads a stored error. A
// fault of ours keeps its text, which the peer hides from its clients.
func ToPeer(err error) *status.Status {
	if err == nil {
		return status.New(codes.OK, "")
	}
	e, ok := As(err)
	if !ok {
		if s, isStatus := status.FromError(err); isStatus {
			return s
		}
		switch {
		case errors.Is(err, context.Canceled):
			return status.New(codes.Canceled, "the caller left")
		case errors.Is(err, context.DeadlineExceeded):
			return status.New(codes.DeadlineExceeded, "the caller's deadline passed")
		}
		return Internal("%w", err).status()
	}
	e = e.clone()
	if outer := err.Error(); strings.Contains(outer, e.Message) && (e.Code != codes.Internal || e.ours()) {
		e.Message = outer // The wrapping text names the resource more precisely.
	}
	return e.status()
}

// Encode writes an error as a ledger keeps it.
func Encode(err error) []byte {
	encoded, marshalErr := proto.Marshal(ToPeer(err).Proto())
	if marshalErr != nil {
		return nil // Decode returns the error for an unreadable value.
	}
	return encoded
}

// Decode decodes the result of Encode.
func Decode(encoded []byte) error {
	kept := &statuspb.Status{}
	if err := proto.Unmarshal(encoded, kept); err != nil || kept.GetCode() == 0 {
		return Internal("an error that was kept cannot be read")
	}
	return FromStatus(status.ErrorProto(kept))
}

// ours reports whether e is a fault of ours whose text has not been hidden yet.
func (e *Error) ours() bool {
	return e.Reason == errorsv1.ErrorReason_ERROR_REASON_INTERNAL && e.Metadata["requestId"] == ""
}

// GRPCStatus returns e as a status, for code that knows errors of gRPC only.
func (e *Error) GRPCStatus() *status.Status { return ToStatus(e) }

func (e *Error) status() *status.Status {
	s := status.New(e.Code, strings.ToValidUTF8(cut(e.Message, bound.ErrorMessageBytes), "\uFFFD"))
	details := []protoadapt.MessageV1{}
	if e.Reason != errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		details = append(details, &errdetails.ErrorInfo{Reason: ReasonName(e.Reason), Domain: Domain, Metadata: e.Metadata})
	}
	if len(e.Fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, f := range e.Fields[:min(len(e.Fields), bound.FieldViolations)] {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: strings.ToValidUTF8(f.Path, "\uFFFD"), Description: strings.ToValidUTF8(f.Description, "\uFFFD"),
			})
		}
		details = append(details, bad)
	}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	if name := e.Metadata["resource"]; name != "" {
		details = append(details, &errdetails.ResourceInfo{ResourceName: name})
	}
	if d := e.obstacle(); d != nil {
		details = append(details, d)
	}
	for _, further := range e.Details {
		details = append(details, protoadapt.MessageV1Of(further))
	}
	if len(details) == 0 {
		return s
	}
	withDetails, detailErr := s.WithDetails(details...)
	if detailErr != nil {
		return s
	}
	return withDetails
}

// obstacle returns the detail for the state or the quota that prevents the call; nil for other reasons.
func (e *Error) obstacle() protoadapt.MessageV1 {
	precondition := func(subject string) protoadapt.MessageV1 {
		return &errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{
			{Type: ReasonName(e.Reason), Subject: e.Metadata[subject], Description: e.Message},
		}}
	}
	quota := func(subject string) protoadapt.MessageV1 {
		return &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: e.Metadata[subject], Description: e.Message}}}
	}
	switch e.Reason {
	case errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_IN_USE:
		return precondition("resource")
	case errorsv1.ErrorReason_ERROR_REASON_SANDBOX_TERMINATED:
		return precondition("sandbox")
	case errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL:
		return quota("account")
	case errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA:
		return quota("quota")
	case errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED:
		return quota("scope")
	default:
		return nil
	}
}

// FromStatus turns a status error from the wire back into an *Error. Other errors are returned unchanged.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := As(err); ok {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &Error{Code: s.Code(), Message: s.Message()}
	switch e.Code { //nolint:exhaustive // Only these two have a Go error of their own.
	case codes.Canceled:
		e.cause = context.Canceled
	case codes.DeadlineExceeded:
		e.cause = context.DeadlineExceeded
	}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == Domain {
				e.Reason = errorsv1.ErrorReason(errorsv1.ErrorReason_value[reasonPrefix+d.GetReason()])
				e.Metadata = d.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Fields = append(e.Fields, Field{Path: v.GetField(), Description: v.GetDescription()})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		case *errdetails.ResourceInfo, *errdetails.PreconditionFailure, *errdetails.QuotaFailure: // metadata repeats them
		case proto.Message:
			e.Details = append(e.Details, d)
		}
	}
	return e
}

// Wrap puts words before an error's message and keeps its kind. Nil stays nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	words := fmt.Sprintf(format, args...)
	e, ok := As(err)
	if !ok {
		return fmt.Errorf("%s: %w", words, err)
	}
	c := e.clone()
	c.Message = words + ": " + e.Message
	c.cause = err
	return c
}
