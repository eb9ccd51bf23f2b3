package rpcerr

import (
	"encoding/json"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// failure is an error as REST writes it (AIP-193).
type failure struct {
	Error struct {
		// Code is the HTTP status.
		Code int `json:"code"`
		// Status is the name of the gRPC code.
		Status  string          `json:"status"`
		Message string          `json:"message"`
		Details json.RawMessage `json:"details,omitempty"`
	} `json:"error"`
}

// JSON writes a status in REST's form: `{"error": {"code": 404, "status": "NOT_FOUND", "message": "…", "details":
// […]}}`. Every error over HTTP has this form, within a stream too.
func JSON(s *status.Status, httpStatus int) []byte {
	var f failure
	f.Error.Code, f.Error.Status, f.Error.Message = httpStatus, code.Code(s.Code()).String(), s.Message()
	if text, err := protojson.Marshal(s.Proto()); err == nil { // Else a detail is of a type that is not known here.
		var whole struct{ Details json.RawMessage }
		if json.Unmarshal(text, &whole) == nil {
			f.Error.Details = whole.Details
		}
	}
	text, _ := json.Marshal(f) // Texts and a number.
	return text
}
