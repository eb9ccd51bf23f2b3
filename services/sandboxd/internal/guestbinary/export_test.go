package guestbinary

// FindWithin finds the program in files that stand for those within the running program.
var FindWithin = findWithin
