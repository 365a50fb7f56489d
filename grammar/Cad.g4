// Cad.g4 -- the grammar of .cad programs. The lexer here yields raw tokens; frontend/tokens.cc
// then drops newlines that do not end a statement, inserts those before `}` and the end of file,
// turns `dim`, `layer`, .. into names where no item or statement starts, joins quantities, and
// balances brackets. So every statement ends in NL, and every decision below needs at most two
// tokens of lookahead: SLL prediction is exact and parsing is linear.
grammar Cad;
options { language = Cpp; }
tokens { QUANTITY }

file      : (item NL)* EOF ;
expression : expr NL EOF ;

item      : importItem | dimDecl | letItem | defItem | section ;
importItem : IMPORT STRING (AS NAME)? ;
dimDecl   : DIM dimBind (COMMA dimBind)* ;
dimBind   : NAME (ASSIGN expr)? ;
letItem   : LET NAME ASSIGN expr ;

defItem   : defHead block ;
defHead   : kind=(FN | LAYER | MODEL) NAME dimParams? params ARROW type ;
dimParams : LBRACK dimParam (COMMA dimParam)* RBRACK ;
dimParam  : from=NAME (ARROW to=NAME)? ;
params    : LPAREN (param (COMMA param)* COMMA?)? RPAREN ;
param     : NAME COLON type (ASSIGN expr)? ;

type      : NAME? LBRACK (dimTerm (COMMA dimTerm)*)? RBRACK   # tensorType
          | NAME                                              # nameType
          | LPAREN type (COMMA type)+ RPAREN                  # tupleType
          ;
dimTerm   : DOTS | expr ;

block     : LBRACE (stmt NL)* RBRACE ;
stmt      : dimDecl                                                                   # dimStmt
          | kind=(PARAM | STATE) NAME (COMMA NAME)* COLON type (ASSIGN expr)? annot*  # paramStmt
          | USE NAME ASSIGN expr annot*                                               # useStmt
          | repeatHead block                                                          # repeatStmt
          | RETURN expr (COMMA expr)* annot*                                          # returnStmt
          | NAME (COMMA NAME)* (COLON type)? ASSIGN expr annot*                       # bindStmt
          ;
repeatHead : REPEAT expr (AS NAME)? annot* ;
annot     : AT NAME (LPAREN (arg (COMMA arg)* COMMA?)? RPAREN)? ;

expr      : expr LPAREN (arg (COMMA arg)* COMMA?)? RPAREN            # callExpr
          | expr LBRACK dimArg (COMMA dimArg)* RBRACK                # dimsExpr
          | expr DOT NAME                                            # memberExpr
          | <assoc=right> expr op=CARET expr                         # binaryExpr
          | op=MINUS expr                                            # unaryExpr
          | expr (op=(STAR | SLASH | DSLASH | PERCENT) | contract) expr  # binaryExpr
          | expr op=(PLUS | MINUS) expr                              # binaryExpr
          | expr op=(LT | LE | GT | GE | EQ | NE) expr               # binaryExpr
          | op=NOT expr                                              # unaryExpr
          | expr op=AND expr                                         # binaryExpr
          | expr op=OR expr                                          # binaryExpr
          | expr op=PIPE expr                                        # binaryExpr
          | (NUMBER | QUANTITY | STRING | NAME)                      # atomExpr
          | LPAREN (arg (COMMA arg)* COMMA?)? RPAREN                 # parenExpr
          ;
contract  : ATL dimTerm (COMMA dimTerm)* RBRACK ;
arg       : (NAME COLON)? expr ;
dimArg    : DOTS
          | NAME ASSIGN expr (COLON expr)? (ARROW expr)?
          | expr (ARROW expr)?
          ;

section   : sectionHead LBRACE (entry (NL | COMMA))* RBRACE ;
sectionHead : NAME NAME? ;
entry     : setting | section ;
setting   : NAME COLON expr ;

IMPORT: 'import'; AS: 'as'; DIM: 'dim'; LET: 'let'; FN: 'fn'; LAYER: 'layer'; MODEL: 'model';
PARAM: 'param'; STATE: 'state'; USE: 'use'; REPEAT: 'repeat'; RETURN: 'return';
NOT: 'not'; AND: 'and'; OR: 'or';
ATL: '@['; AT: '@'; ARROW: '->'; PIPE: '|>'; DOTS: '..'; DOT: '.';
LE: '<='; GE: '>='; EQ: '=='; NE: '!='; LT: '<'; GT: '>'; ASSIGN: '='; COLON: ':'; COMMA: ',';
LPAREN: '('; RPAREN: ')'; LBRACK: '['; RBRACK: ']'; LBRACE: '{'; RBRACE: '}';
PLUS: '+'; MINUS: '-'; STAR: '*'; SLASH: '/'; PERCENT: '%'; DSLASH: '//'; CARET: '^';
NUMBER: [0-9] [0-9_]* ('.' [0-9]+)? ([eE] [+-]? [0-9]+)? ;
NAME: [a-zA-Z_] [a-zA-Z_0-9]* ;
STRING: '"' (~["\\\r\n] | '\\' ~[\r\n])* '"' ;
OPEN_STRING: '"' (~["\\\r\n] | '\\' ~[\r\n])* '\\'? ;   // no closing quote on its line
COMMENT: '#' ~[\r\n]* ;
WS: [ \t]+ -> skip ;
NL: '\r\n' | '\n' | '\r' ;
BAD: . ;
