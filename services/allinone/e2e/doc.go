// Package e2e tests the built program from outside, as its users meet it: the binary, its one address, its data
// directory.
//
// The tests build the binaries once, start servers on free loopback ports with data directories of their own, and look
// at nothing but what a client, a shell or an operator sees: gRPC, REST, exit codes, output, and the journal through
// the API. What a client can see is tested in two forms: on the single binary, and on a process for each service. Some
// kill the server at named places (built with the tag `failpoint`) or at any moment, and ask that nothing was lost and
// nothing done twice.
package e2e
