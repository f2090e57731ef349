"""The options of ``format("nsq")``: a module for each kind of reading and writing."""
